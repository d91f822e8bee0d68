"""Plots of a finished forecast's numbers, one in a module."""
