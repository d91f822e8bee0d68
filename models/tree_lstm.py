"""The Tree-LSTM of the paper on the Stanford Sentiment Treebank: a label at every node of a tree.

Source: AMPNet, Section 2 and Appendix B.3, after Tai et al. (2015) and the benchmark of Looks et
al. (2017, TensorFlow Fold). An instance is a tree. Its leaves go through the embedding and the
Leaf-LSTM together, as one matrix; its branches one by one, as the paper does ("we are only grouping
the leaf operations and not the branch operations").

A tree's shape travels in the states of its messages. A node's state holds its place: the root is
1, the children of place p are 2p and 2p + 1. A `Cond` tells from the place whether a message stands
at the root, or at the left or right child of its parent; an `Isu` halves the place; and in the
Branch-LSTM it meets its sibling, whose place halves to the same number. Nothing outside the graph
recurses.

What the paper leaves open, and what is chosen here:

* 300 hidden units, as Fold's example has, and embeddings of 300 numbers from a normal distribution
  of deviation 0.1. `vectors` names a file of word vectors in GloVe's text format to start from
  instead, as the paper does; words that it lacks start as without it.
* Adam with a rate of 1e-3, constant. No dropout.
* The loss of a node is the cross-entropy of its label; a tree's loss is their sum.
* Accuracy is over all nodes. Words that training never saw share one row of the embedding, which
  stays as it was drawn.
* `min_update_interval` is the paper's: 50, and 1000 for the embedding. The paper says that 50
  gradients are "roughly 2 trees". So they count nodes of a tree, words at the leaves; but words
  arrive as one message a tree, of 19 in the mean, so that embedding and Leaf-LSTM are told 53 and 3
  messages. Taken as messages, 1000 would leave the embedding 8 updates an epoch, which here, where
  it starts at random, is too few.
* Nodes of the data that are not binary are handled by the reader (`ampsim.data`).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Annotated, Any, Literal, NamedTuple

import numpy as np
from pydantic import Field

import ampsim
from ampsim.data import SentimentTrees, Tree, read_vectors
from ampsim.errors import OptionError
from ampsim.ir import Cond, Graph, Isu, Phi, Pumped, Wire
from ampsim.nodes import (
    BranchLSTM,
    CellForm,
    Columns,
    Dropout,
    Embedding,
    LeafLSTM,
    Linear,
    SoftmaxCrossEntropy,
    Ungroup,
    cell_adder,
)
from ampsim.optim import OPTIMIZERS

CLASSES = 5
ROOT = 1
DEVIATION = 0.1
MASKS_SEED = 0
"""Of dropout: masks follow instance and place, and are the same whatever a run's seed."""

WORDS_PER_TREE = 19
"""In the mean over the treebank's training trees: 19.14."""


@dataclass(frozen=True)
class Config:
    """Options of the Tree-LSTM.

    Args:
        hidden: units of the LSTM cells.
        embedding: width of the word embedding.
        words: rows of the word embedding; the treebank's training trees have 18,280 words, and
            one row is for all others.
        optimizer: "adam" or "adagrad".
        learning_rate: of the optimizer.
        keep_probability: with which elements of word vectors, of the cells' candidates and of what
            the classifier reads are kept in training; 1 for no dropout.
        word_gradient_factor: what gradients of the embedding are multiplied by.
        min_update_interval: gradients of tree nodes between updates under AMP, but for the
            embedding.
        embedding_update_interval: gradients of words between updates of the embedding.
        cell: "fused", an LSTM is one node on one worker; or "composed", single operations, of which
            light ones can be on other workers than products, as in the paper; or "by-gate", the
            same with products of its own for each gate.
        vectors: a file of word vectors in GloVe's text format; empty for none.
        data: "sst", from files, or "synthetic", generated from the seed.
        folder: the data folder; empty for $AMPSIM_DATA, or the platform's cache folder.
        dtype: of parameters and activations.
    """

    hidden: Annotated[int, Field(ge=1)] = 300
    embedding: Annotated[int, Field(ge=1)] = 300
    words: Annotated[int, Field(ge=1)] = 18_281
    optimizer: Literal["adam", "adagrad"] = "adam"
    learning_rate: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 1e-3
    keep_probability: Annotated[float, Field(gt=0, le=1)] = 1.0
    word_gradient_factor: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 1.0
    min_update_interval: Annotated[int, Field(ge=1)] = 50
    embedding_update_interval: Annotated[int, Field(ge=1)] = 1000
    cell: CellForm = "fused"
    vectors: str = ""
    data: Literal["sst", "synthetic"] = "sst"
    folder: str = ""
    dtype: Literal["float32", "float64"] = "float32"


class Places(NamedTuple):
    """State of what is pumped for a whole tree: the places of its leaves, or of its nodes."""

    instance: int
    places: tuple[int, ...]


class At(NamedTuple):
    """State of a message at one node of a tree."""

    instance: int
    place: int


def take_place(state: Places, i: int) -> At:
    """Give the i-th row its place."""
    return At(state.instance, state.places[i])


def to_parent(state: At) -> At:
    """Go up."""
    return At(state.instance, state.place >> 1)


def to_left(state: At) -> At:
    """Go back to the left child."""
    return At(state.instance, 2 * state.place)


def to_right(state: At) -> At:
    """Go back to the right child."""
    return At(state.instance, 2 * state.place + 1)


def side(state: At) -> str:
    """Which child of its parent the node is, if it has one."""
    if state.place == ROOT:
        return "root"
    return "right" if state.place & 1 else "left"


def places_of(tree: Tree) -> tuple[int, ...]:
    """Return the place of each node, in the tree's own order (children before parents)."""
    places = [ROOT] * tree.nodes
    children = list(zip(tree.left.tolist(), tree.right.tolist(), strict=True))
    for branch in range(tree.nodes - 1, tree.leaves - 1, -1):
        left, right = children[branch - tree.leaves]
        places[left] = 2 * places[branch]
        places[right] = 2 * places[branch] + 1
    return tuple(places)


def pump(instance: int, tree: Tree) -> list[Pumped]:
    """Send words and labels of a tree."""
    places = places_of(tree)
    leaves = Places(instance, places[: tree.leaves])
    return [("word", leaves, tree.words), ("label", Places(instance, places), tree.labels)]


def tree_graph(config: Config, table: Embedding) -> Graph:
    """Build the graph around the table of words."""
    hidden, dropped = config.hidden, 1 - config.keep_probability
    graph = Graph("tree_lstm")

    def drop(name: str, wire: Wire) -> Wire:
        return graph.add(Dropout(name, dropped, MASKS_SEED), wire) if dropped else wire

    word, label = graph.controller(word=("leaves",), label=("nodes",))
    words = drop("words-dropout", graph.add(table, word))
    add_cell = cell_adder(graph, config.cell)
    of_leaves = LeafLSTM("leaf-lstm", config.embedding, hidden, dropout=dropped, seed=MASKS_SEED)
    leaves = add_cell(of_leaves, words)
    leaf = graph.add(Ungroup("leaves", take_place, keep_axis=True), leaves)
    node = Phi("node", ("leaf", "branch"))
    sides = Cond("side", side, ("root", "left", "right"))
    root, left, right = graph.branch(sides, graph.add(node, leaf))
    branch = add_cell(
        BranchLSTM("branch-lstm", hidden, dropout=dropped, seed=MASKS_SEED),
        graph.add(Isu("from-left", to_parent, to_left), left),
        graph.add(Isu("from-right", to_parent, to_right), right),
    )
    graph.connect(branch, node, "branch")
    state = graph.add(Phi("every-node", ("root", "left", "right")), root, left, right)
    output = graph.add(Columns("output", 2 * hidden, 0, hidden), state)
    output = drop("output-dropout", output)
    logits = graph.add(Linear("classifier", hidden, CLASSES), output)
    labels = graph.add(Ungroup("labels", take_place, keep_axis=True), label)
    graph.end(SoftmaxCrossEntropy("loss"), logits, labels)
    return graph


def load(config: Config, seed: int, **counts: int) -> SentimentTrees:
    """Read or generate the data.

    Raises:
        OptionError: it has more words than the embedding has rows.
    """
    if config.data == "synthetic":
        data = SentimentTrees.synthetic(seed, **counts)
    else:
        data = SentimentTrees.load(config.folder or None, **counts)
    words = len(data.vocabulary)
    if words > config.words:
        raise OptionError(
            f"tree_lstm: field 'words': the data has {words}, but the embedding has "
            f"{config.words} rows; try --set words={words}"
        )
    return data


def build(config: Config) -> ampsim.Model:
    """Build the model."""
    shape = (config.words, config.embedding)

    @cache
    def vectors() -> Any:
        vocabulary = load(config, 0, train_count=1, valid_count=1).vocabulary
        return read_vectors(config.vectors, vocabulary, config.embedding)

    def table(generator: np.random.Generator) -> np.ndarray:
        drawn = generator.normal(0.0, DEVIATION, shape)
        if config.vectors:
            known = np.flatnonzero(vectors().found)
            drawn[known] = vectors().vectors[known]
        return drawn

    def graph() -> Graph:
        factor = config.word_gradient_factor
        words = Embedding("embedding", *shape, is_sparse=True, start=table, gradient_factor=factor)
        return tree_graph(config, words)

    def data(seed: int, train_count: int | None) -> Any:
        return load(config, seed, **({} if train_count is None else {"train_count": train_count}))

    intervals = {
        node.name: max(1, round(gradients / WORDS_PER_TREE))
        for part, gradients in (
            ("embedding", config.embedding_update_interval),
            ("leaf-lstm", config.min_update_interval),
        )
        for node in graph().parameterized
        if node.name.startswith(part)
    }
    return ampsim.Model(
        name="tree_lstm",
        config=config,
        make_graph=graph,
        make_data=data,
        pump=pump,
        optimizer=OPTIMIZERS[config.optimizer](config.learning_rate),
        target=0.82,
        min_update_interval=config.min_update_interval,
        node_update_intervals=intervals,
        items="trees",
        dtype=config.dtype,
    )
