"""The operators, a family a file. Each is listed once, and by being listed has every test."""

from ampsim.dataflow.operators import elements, resource, rows, shape

__all__ = ["elements", "resource", "rows", "shape"]
