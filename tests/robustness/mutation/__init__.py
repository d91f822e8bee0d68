"""Inputs that are wrong in ways that people and disks come up with, one module for each kind."""
