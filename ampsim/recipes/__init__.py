"""Reports that follow from a recipe: reading it, running its rows, checking what was made of it."""
