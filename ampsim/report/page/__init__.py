"""Pages of a forecast, of a run and of a recipe, with the tables and figures that they show."""
