"""Cells as single operations: what a fused cell computes in one step, as nodes of their own.

A fused cell lives on one worker and does its light work there too. Composed, its products are
heavy nodes, and its light ones can be placed on other workers, as the paper places them (Section
3.1). In Figure 4 "RNNCell" is one box and "denotes a recurrent structure (e.g. GRU, LSTM), the
details of which we omit", so the parts are chosen here, in two ways. Few: as many products as the
fused cell has, and one sigmoid for all gates. By gate: a product and a sigmoid for each, as the
equations of Cho et al. (2014) and of Hochreiter and Schmidhuber (1997) have them.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Literal, TypeAlias

import numpy as np

from ampsim.arguments import checked
from ampsim.errors import GraphError
from ampsim.ir import Graph, Wire
from ampsim.nodes.arithmetic import Difference, Product, Sum
from ampsim.nodes.columns import Concat, Split
from ampsim.nodes.elementwise import Dropout, Sigmoid, Tanh
from ampsim.nodes.gru import GRUCell
from ampsim.nodes.linear import Linear
from ampsim.nodes.lstm import LSTMStep

CellForm: TypeAlias = Literal["fused", "composed", "by-gate"]
"""How cells stand in a graph: as one node each, as few operations, or as those of each gate."""


@checked
def cell_adder(graph: Graph, form: CellForm) -> Callable[..., Wire]:
    """Return what adds a cell in that form: ``add(cell, *wires)`` gives its output's wire."""
    if form == "fused":
        return graph.add
    return partial(compose, graph, by_gate=form == "by-gate")


@checked
def compose(graph: Graph, cell: GRUCell | LSTMStep, *wires: Wire, by_gate: bool = False) -> Wire:
    """Add the operations of `cell` to a graph instead of the cell, which stays unused.

    They compute the same, have as many parameters, and start from the same numbers for a seed. The
    product of an LSTM keeps the cell's name, and so do its parameters; those of a GRU are called
    ``NAME-input`` and ``NAME-state``. By gate, those of an LSTM are ``NAME-o``, ``NAME-i``,
    ``NAME-f-PORT`` for each state that it reads, and ``NAME-g``; those of a GRU are
    ``NAME-r-input``, ``NAME-r-state``, and so on for z and n. All other nodes are ``NAME-`` and
    what they hold.

    Args:
        graph: to add to.
        cell: the fused cell.
        wires: feed its inputs, in the order of its ports.
        by_gate: whether each gate has a product of its own.

    Returns:
        The wire of its output.

    Raises:
        GraphError: there are not as many wires as inputs, or the cell has two biases.
    """
    if len(wires) != len(cell.inputs):
        raise GraphError(
            f"{graph.name}: {cell.describe()} composed takes a wire for each input "
            f"({', '.join(cell.inputs)}), got {len(wires)}; connect() can close a loop at a Phi"
        )
    if isinstance(cell, LSTMStep) and "bias_state" in cell.parameter_shapes:
        raise GraphError(
            f"{graph.name}: {cell.describe()} composed has one bias; leave has_two_biases out"
        )
    if isinstance(cell, GRUCell):
        return _gru(graph, cell, *wires, by_gate=by_gate)
    return _lstm(graph, cell, wires, by_gate=by_gate)


def _gru(graph: Graph, cell: GRUCell, x: Wire, h: Wire, *, by_gate: bool) -> Wire:
    """r, z = σ(·), n = tanh(xₙ + r hₙ), and h' = n + z (h − n), which is (1 − z) n + z h."""
    name = cell.name
    gates = _gru_by_gate if by_gate else _gru_by_input
    (r, z), (from_input, from_state) = gates(graph, cell, x, h)
    reset = graph.add(Product(f"{name}-reset"), r, from_state)
    mixed = graph.add(Sum(f"{name}-mixed"), from_input, reset)
    candidate = graph.add(Tanh(f"{name}-candidate"), mixed)
    change = graph.add(Difference(f"{name}-change"), h, candidate)
    kept = graph.add(Product(f"{name}-kept"), z, change)
    return graph.add(Sum(f"{name}-next"), candidate, kept)


def _gru_by_input(graph: Graph, cell: GRUCell, x: Wire, h: Wire) -> tuple[list[Wire], list[Wire]]:
    """Return [r, z], and what input and state give n, with one product for each of the two."""
    name, units = cell.name, cell.hidden
    of_gates: list[Wire] = []
    of_candidate: list[Wire] = []
    for port, wire in zip(cell.inputs, (x, h), strict=True):
        product = graph.add(_product(cell, f"{name}-{port}", port), wire)
        parts = graph.branch(Split(f"{name}-{port}-split", (2 * units, units)), product)
        of_gates.append(parts[0])
        of_candidate.append(parts[1])
    opened = graph.add(Sigmoid(f"{name}-sigmoid"), graph.add(Sum(f"{name}-sum"), *of_gates))
    return list(graph.branch(Split(f"{name}-gates", (units, units)), opened)), of_candidate


def _gru_by_gate(graph: Graph, cell: GRUCell, x: Wire, h: Wire) -> tuple[list[Wire], list[Wire]]:
    """Return the same, with two products for each of r, z and n."""
    r, z, of_candidate = (
        [
            graph.add(_product(cell, f"{cell.name}-{gate}-{port}", port, place), wire)
            for port, wire in zip(cell.inputs, (x, h), strict=True)
        ]
        for place, gate in enumerate("rzn")
    )
    opened = [
        graph.add(
            Sigmoid(f"{cell.name}-{gate}-sigmoid"),
            graph.add(Sum(f"{cell.name}-{gate}-sum"), *parts),
        )
        for gate, parts in (("r", r), ("z", z))
    ]
    return opened, of_candidate


def _lstm(graph: Graph, cell: LSTMStep, wires: tuple[Wire, ...], *, by_gate: bool) -> Wire:
    """[o i f₁…fₙ g] = x W + b, c = σ(i) tanh(g) + Σⱼ σ(fⱼ) cⱼ, h = σ(o) tanh(c)."""
    name, units, ports = cell.name, cell.hidden, [cell.inputs[port] for port in cell.reads]
    halves = {
        port: graph.branch(Split(f"{name}-{cell.inputs[port]}", (units, units)), wires[port])
        for port in cell.reads
    }
    columns = [halves[port][0] if port in halves else wire for port, wire in enumerate(wires)]
    joined = columns[0]
    if len(columns) > 1:
        joined = graph.add(Concat(f"{name}-joined", cell.widths), *columns)
    gates = _lstm_by_gate if by_gate else _lstm_at_once
    (o, i, *forgets), bent = gates(graph, cell, joined)
    candidate = graph.add(Tanh(f"{name}-candidate"), bent)
    if cell.dropout is not None:
        drop = Dropout(f"{name}-dropout", *cell.dropout, masks_of=name)
        candidate = graph.add(drop, candidate)
    memory = graph.add(Product(f"{name}-entry"), i, candidate)
    kept = [
        graph.add(Product(f"{name}-kept-{port}"), forget, cells)
        for port, forget, (_h, cells) in zip(ports, forgets, halves.values(), strict=True)
    ]
    if kept:
        memory = graph.add(Sum(f"{name}-memory", 1 + len(kept)), memory, *kept)
    hidden = graph.add(Product(f"{name}-hidden"), o, graph.add(Tanh(f"{name}-tanh"), memory))
    return graph.add(Concat(f"{name}-next", (units, units)), hidden, memory)


def _lstm_at_once(graph: Graph, cell: LSTMStep, joined: Wire) -> tuple[list[Wire], Wire]:
    """Return [σ(o), σ(i), σ(f₁)…σ(fₙ)], and g, with one product."""
    name, units, count = cell.name, cell.hidden, 2 + len(cell.reads)
    product = graph.add(_product(cell, name), joined)
    closed, bent = graph.branch(Split(f"{name}-product", (count * units, units)), product)
    opened = graph.add(Sigmoid(f"{name}-sigmoid"), closed)
    return list(graph.branch(Split(f"{name}-gates", (units,) * count), opened)), bent


def _lstm_by_gate(graph: Graph, cell: LSTMStep, joined: Wire) -> tuple[list[Wire], Wire]:
    """Return the same, with a product for each of o, i, f₁…fₙ and g."""
    names = [f"{cell.name}-{gate}" for gate in ("o", "i")]
    names += [f"{cell.name}-f-{cell.inputs[port]}" for port in cell.reads]
    names.append(f"{cell.name}-g")
    *closed, bent = [
        graph.add(_product(cell, name, gate=place), joined) for place, name in enumerate(names)
    ]
    opened = [
        graph.add(Sigmoid(f"{name}-sigmoid"), wire)
        for name, wire in zip(names[:-1], closed, strict=True)
    ]
    return opened, bent


def _product(
    cell: GRUCell | LSTMStep, name: str, port: str | None = None, gate: int | None = None
) -> Linear:
    """One input's product, or all inputs', for a gate or for all; it starts as the cell's part."""
    suffix = "" if port is None else f"_{port}"
    width = cell.d_in if port is None else cell.widths[cell.inputs.index(port)]
    units = cell.hidden
    columns = slice(0, cell.d_out) if gate is None else slice(gate * units, (gate + 1) * units)

    def start(generator: np.random.Generator) -> np.ndarray:
        drawn = cell.views(cell.initialise(generator))
        return np.vstack([drawn[f"weight{suffix}"], drawn[f"bias{suffix}"]])[:, columns]

    product = Linear(name, width, columns.stop - columns.start, start=start)
    product.seed_name = cell.name
    return product
