"""The gated graph network of the paper on QM9: the norm of a molecule's dipole moment.

Source: AMPNet, Section 2, Figure 4(a) and Appendix B.4; the propagation model of Li et al. (2015)
in the simplest setting of Gilmer et al. (2017): 100 hidden units, 4 propagation steps, a linear
layer for each type of bond. An instance is a molecule.

In each step `Distribute` cuts the atoms' states into one sub-matrix for each type of bond, a row
for each directed bond; each goes through its linear layer; `Collect` sums them at the bonds' far
ends; and a GRU cell updates the atoms. The controller pumps the bonds once; `Replicate` gives them
to each step.

What the paper leaves open, and what is chosen here:

* An atom's state starts with its features, padded with zeros to the hidden width.
* The readout is Li et al.'s gated sum, Σ σ(i([h, x])) · j([h, x]) over atoms, with linear i and j
  to one output.
* Adam with a rate of 1e-4, decayed by 0.9 after each epoch, for runs of a few epochs. With it the
  error on unseen molecules fell in each of six with one seed, and in all but the second with
  another; higher rates rose more often. The target is standardised; the loss is its squared error.
  Validation measures the mean absolute error in multiples of chemical accuracy, 0.1 debye; the
  target of 4.6 is that of the paper's Table 1.
* A node updates itself after `min_update_interval` gradients, 4 unless told otherwise: those of one
  molecule at a layer of the loop. At this rate, 20 learned more slowly.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache, partial
from typing import Annotated, Any, Literal, NamedTuple

import numpy as np
from pydantic import Field

import ampsim
from ampsim.data import CHEMICAL_ACCURACY_DEBYE, Molecule, Qm9Dipoles
from ampsim.ir import Cond, Graph, Isu, Partition, Phi, Pumped
from ampsim.nodes import (
    CellForm,
    Collect,
    Concat,
    Distribute,
    GRUCell,
    Linear,
    Product,
    Replicate,
    Sigmoid,
    SquaredError,
    cell_adder,
)
from ampsim.optim import adam, exponential

FEATURES = 11
BOND_TYPES = 4


@dataclass(frozen=True)
class Config:
    """Options of the graph network.

    Args:
        hidden: units of an atom's state.
        steps: propagation steps.
        learning_rate: of Adam, in the first epoch.
        decay: factor on the learning rate after each epoch.
        min_update_interval: gradients between updates under AMP.
        cell: "fused", the GRU is one node on one worker; or "composed", single operations, of which
            light ones can be on other workers than products, as in the paper; or "by-gate", the
            same with products of its own for each gate.
        data: "qm9", from files, or "synthetic", generated from the seed.
        folder: the data folder; empty for $AMPSIM_DATA, or the platform's cache folder.
        dtype: of parameters and activations.
    """

    hidden: Annotated[int, Field(ge=FEATURES)] = 100
    steps: Annotated[int, Field(ge=1, le=1000)] = 4
    learning_rate: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 1e-4
    decay: Annotated[float, Field(gt=0, le=1)] = 0.9
    min_update_interval: Annotated[int, Field(ge=1)] = 4
    cell: CellForm = "fused"
    data: Literal["qm9", "synthetic"] = "qm9"
    folder: str = ""
    dtype: Literal["float32", "float64"] = "float32"


class Step(NamedTuple):
    """State of a message: which molecule, which propagation step."""

    instance: int
    step: int


def at_step(state: Step, step: int) -> Step:
    """Tag what goes to a step."""
    return Step(state.instance, step)


def advance(state: Step) -> Step:
    """Count one step."""
    return Step(state.instance, state.step + 1)


def retreat(state: Step) -> Step:
    """Count one step back."""
    return Step(state.instance, state.step - 1)


def figure_4a(config: Config) -> Graph:
    """Build the graph of Figure 4(a) with its readout."""
    hidden, steps = config.hidden, config.steps

    def every_step(state: Step) -> int:
        return steps

    def more(state: Step) -> str:
        return "again" if state.step < steps else "last"

    graph = Graph("ggnn")
    atoms, features, spread, gather, pool, target = graph.controller(
        atoms=("atoms", hidden),
        features=("atoms", FEATURES),
        spread=("atoms",),
        gather=("atoms",),
        pool=(1,),
        target=(1, 1),
    )
    loop = Phi("phi", ("start", "again"))
    state = graph.add(loop, atoms)
    spread_steps = graph.add(Replicate("spread", at_step, every_step), spread)
    gather_steps = graph.add(Replicate("gather", at_step, every_step), gather)
    parts = graph.branch(Distribute("distribute", BOND_TYPES), state, spread_steps)
    sent = [
        graph.add(Linear(f"bond-{kind}", hidden, hidden), part)
        for kind, part in enumerate(parts, 1)
    ]
    received = graph.add(Collect("collect", BOND_TYPES), *sent, gather_steps)
    add_cell = cell_adder(graph, config.cell)
    updated = add_cell(GRUCell("gru", hidden, hidden), received, state)
    counted = graph.add(Isu("isu", advance, retreat), updated)
    again, last = graph.branch(Cond("cond", more, ("again", "last")), counted)
    graph.connect(again, loop, "again")
    joined = graph.add(Concat("readout", (hidden, FEATURES)), last, features)
    gate = graph.add(
        Sigmoid("gate"), graph.add(Linear("readout-gate", hidden + FEATURES, 1), joined)
    )
    value = graph.add(Linear("readout-value", hidden + FEATURES, 1), joined)
    summed = graph.add(Collect("sum", 1), graph.add(Product("gated"), gate, value), pool)
    graph.end(SquaredError("loss"), summed, target)
    return graph


@cache
def all_in_one(rows: int) -> Partition:
    """Every row into the one row of the sum; one object for all molecules of so many atoms."""
    return Partition([np.zeros(rows, np.intp)], size=1)


def pump(config: Config, instance: int, molecule: Molecule) -> list[Pumped]:
    """Send a molecule: atoms, bonds, and the target."""
    atoms = molecule.atom_count
    start, end = Step(instance, 0), Step(instance, config.steps)
    state = np.zeros((atoms, config.hidden), config.dtype)
    state[:, :FEATURES] = molecule.atoms
    target = np.array([[molecule.dipole]], config.dtype)
    return [
        ("atoms", start, state),
        ("features", end, molecule.atoms),
        ("spread", start, Partition([edges.source for edges in molecule.edges], size=atoms)),
        ("gather", start, Partition([edges.target for edges in molecule.edges], size=atoms)),
        ("pool", end, all_in_one(atoms)),
        ("target", end, target),
    ]


def build(config: Config) -> ampsim.Model:
    """Build the model."""

    def data(seed: int, train_count: int | None) -> Any:
        options: dict[str, Any] = {"dtype": config.dtype}
        if train_count is not None:
            options["train_count"] = train_count
        if config.data == "synthetic":
            return Qm9Dipoles.synthetic(seed, **options)
        return Qm9Dipoles.load(config.folder or None, **options)

    return ampsim.Model(
        name="ggnn",
        config=config,
        make_graph=lambda: figure_4a(config),
        make_data=data,
        pump=partial(pump, config),
        optimizer=adam(exponential(config.learning_rate, config.decay)),
        target=4.6,
        metric="error",
        error_unit="× chemical accuracy",
        error_scale=lambda data: data.std_debye / CHEMICAL_ACCURACY_DEBYE,
        min_update_interval=config.min_update_interval,
        items="molecules",
        dtype=config.dtype,
    )
