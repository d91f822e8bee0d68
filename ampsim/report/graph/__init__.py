"""Graphs of models, as a picture and in DOT."""
