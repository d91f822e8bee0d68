"""Data sets behind one interface; one file per data set."""

from ampsim.data.dataset import Dataset, Split
from ampsim.data.list_reduction import ListBatch, ListReduction, ListSplit, Operation, reduce_list

__all__ = [
    "Dataset",
    "ListBatch",
    "ListReduction",
    "ListSplit",
    "Operation",
    "Split",
    "reduce_list",
]
