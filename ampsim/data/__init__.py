"""Data sets behind one interface; one file per data set."""

from ampsim.data.arrays import ArrayBatch, ArrayDataset, BatchWarmup, Instance, pump_arrays
from ampsim.data.dataset import Dataset, Split
from ampsim.data.download import FileStatus, fetch, survey
from ampsim.data.list_reduction import (
    ListBatch,
    ListOperation,
    ListReduction,
    ListSplit,
    Operation,
    reduce_list,
)
from ampsim.data.mnist import ImageBatch, Mnist
from ampsim.data.molecules import Edges, Molecule
from ampsim.data.qm9_dipoles import CHEMICAL_ACCURACY_DEBYE, Qm9Dipoles
from ampsim.data.registry import (
    DATASETS,
    Copy,
    DataFile,
    DataSource,
    MissingDataError,
    data_folder,
    find_file,
)
from ampsim.data.sentiment_trees import SentimentTrees, Tree
from ampsim.data.vocabulary import UNKNOWN, Vocabulary, WordVectors, read_vectors
from ampsim.data.wikiner import Sentence, WikiNer

__all__ = [
    "CHEMICAL_ACCURACY_DEBYE", "DATASETS", "UNKNOWN", "ArrayBatch", "ArrayDataset", "BatchWarmup",
    "Copy", "DataFile", "DataSource", "Dataset", "Edges", "FileStatus", "ImageBatch", "Instance",
    "ListBatch", "ListOperation", "ListReduction", "ListSplit", "MissingDataError", "Mnist",
    "Molecule", "Operation", "Qm9Dipoles", "Sentence", "SentimentTrees", "Split", "Tree",
    "Vocabulary", "WikiNer", "WordVectors", "data_folder", "fetch", "find_file", "pump_arrays",
    "read_vectors", "reduce_list", "survey",
]  # fmt: skip
