"""Cells as single operations: what a fused cell computes in one step, as nodes of their own.

A fused cell lives on one worker and does its light work there too. Composed, its products are
heavy nodes, and its light ones can be placed on other workers, as the paper places them (Section
3.1). AMPNet draws its RNN cell as one box, "a compound [...], the details of which we omit" (Figure
4), so the parts are chosen here: the formula of the fused cell in as few nodes as say it.
"""

from __future__ import annotations

import numpy as np

from ampsim.errors import GraphError
from ampsim.ir import Graph, Wire
from ampsim.nodes.arithmetic import Difference, Product, Sum
from ampsim.nodes.concat import Concat
from ampsim.nodes.elementwise import Sigmoid, Tanh
from ampsim.nodes.gru import GRUCell
from ampsim.nodes.linear import Linear
from ampsim.nodes.lstm_step import LSTMStep
from ampsim.nodes.split import Split


def compose(graph: Graph, cell: GRUCell | LSTMStep, *wires: Wire) -> Wire:
    """Add the operations of `cell` to a graph instead of the cell, which stays unused.

    They compute the same, have as many parameters, and start from the same numbers for a seed. The
    product of an LSTM keeps the cell's name, and so do its parameters; those of a GRU are called
    ``NAME-input`` and ``NAME-state``; all other nodes are ``NAME-`` and what they hold.

    Args:
        graph: to add to.
        cell: the fused cell, without dropout.
        wires: feed its inputs, in the order of its ports.

    Returns:
        The wire of its output.

    Raises:
        GraphError: there are not as many wires as inputs, or the cell has dropout.
    """
    if len(wires) != len(cell.inputs):
        raise GraphError(
            f"{graph.name}: {cell.describe()} composed takes a wire for each input "
            f"({', '.join(cell.inputs)}), got {len(wires)}; connect() can close a loop at a Phi"
        )
    if isinstance(cell, GRUCell):
        return _gru(graph, cell, *wires)
    if cell.has_dropout:
        raise GraphError(
            f"{graph.name}: {cell.describe()} has dropout, which only the fused cell knows; "
            "give it no dropout, or add() it fused"
        )
    return _lstm(graph, cell, wires)


def _gru(graph: Graph, cell: GRUCell, x: Wire, h: Wire) -> Wire:
    """r, z = σ(·), n = tanh(xₙ + r hₙ), and h' = n + z (h − n), which is (1 − z) n + z h."""
    name, units = cell.name, cell.hidden
    of_gates: list[Wire] = []
    of_candidate: list[Wire] = []
    for port, wire in zip(cell.inputs, (x, h), strict=True):
        product = graph.add(_part_of_gru(cell, port), wire)
        parts = graph.branch(Split(f"{name}-{port}-split", (2 * units, units)), product)
        of_gates.append(parts[0])
        of_candidate.append(parts[1])
    opened = graph.add(Sigmoid(f"{name}-sigmoid"), graph.add(Sum(f"{name}-sum"), *of_gates))
    r, z = graph.branch(Split(f"{name}-gates", (units, units)), opened)
    reset = graph.add(Product(f"{name}-reset"), r, of_candidate[1])
    mixed = graph.add(Sum(f"{name}-mixed"), of_candidate[0], reset)
    candidate = graph.add(Tanh(f"{name}-candidate"), mixed)
    change = graph.add(Difference(f"{name}-change"), h, candidate)
    kept = graph.add(Product(f"{name}-kept"), z, change)
    return graph.add(Sum(f"{name}-next"), candidate, kept)


def _part_of_gru(cell: GRUCell, port: str) -> Linear:
    """The product with one input; what it starts from is the cell's share of one draw."""

    def start(generator: np.random.Generator) -> np.ndarray:
        drawn = cell.views(cell.initialise(generator))
        return np.vstack([drawn[f"weight_{port}"], drawn[f"bias_{port}"]])

    width = cell.widths[cell.inputs.index(port)]
    part = Linear(f"{cell.name}-{port}", width, cell.d_out, start=start)
    part.seed_name = cell.name
    return part


def _lstm(graph: Graph, cell: LSTMStep, wires: tuple[Wire, ...]) -> Wire:
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
    product = graph.add(_product_of(cell), joined)
    gates = (2 + len(ports)) * units
    closed, bent = graph.branch(Split(f"{name}-product", (gates, units)), product)
    opened = graph.add(Sigmoid(f"{name}-sigmoid"), closed)
    o, i, *forgets = graph.branch(Split(f"{name}-gates", (units,) * (2 + len(ports))), opened)
    memory = graph.add(Product(f"{name}-entry"), i, graph.add(Tanh(f"{name}-candidate"), bent))
    kept = [
        graph.add(Product(f"{name}-kept-{port}"), forget, cells)
        for port, forget, (_h, cells) in zip(ports, forgets, halves.values(), strict=True)
    ]
    if kept:
        memory = graph.add(Sum(f"{name}-memory", 1 + len(kept)), memory, *kept)
    hidden = graph.add(Product(f"{name}-hidden"), o, graph.add(Tanh(f"{name}-tanh"), memory))
    return graph.add(Concat(f"{name}-next", (units, units)), hidden, memory)


def _product_of(cell: LSTMStep) -> Linear:
    """The product, which starts from what the cell would."""
    shape = (cell.d_in + 1, cell.d_out)
    return Linear(
        cell.name, cell.d_in, cell.d_out, start=lambda g: cell.initialise(g).reshape(shape)
    )
