"""The rules of the representation, checked before anything runs."""

from __future__ import annotations

from typing import Protocol, TypeAlias

from ampsim.errors import GraphError
from ampsim.ir.node import Node, Shape
from ampsim.options import NODES_MAX

Ports: TypeAlias = "list[list[tuple[int, int]]]"


class Wired(Protocol):
    """What the rules read of a graph whose ports are connected; `ampsim.ir.Graph` has it."""

    name: str
    nodes: list[Node]
    targets: Ports
    sources: Ports


def require_few(graph: str, count: int, node: Node) -> None:
    """Check that a graph of `count` nodes has room for another.

    Raises:
        GraphError: it has none.
    """
    if count >= NODES_MAX:
        raise GraphError(
            f"{graph}: a graph has at most {NODES_MAX:,} nodes, got more at {node.name!r}; "
            "take fewer replicas or layers"
        )


def require_connected(
    graph: str, nodes: list[Node], edges: list[tuple[int, int, int, int]]
) -> tuple[Ports, Ports]:
    """Return the (sources, targets) of every port, each of which has exactly one partner.

    Raises:
        GraphError: a port has no partner, or an input port has several.
    """
    sources: list[list[tuple[int, int] | None]] = [[None] * len(n.inputs) for n in nodes]
    targets: list[list[tuple[int, int] | None]] = [[None] * len(n.outputs) for n in nodes]
    for source, source_port, target, target_port in edges:
        if sources[target][target_port] is not None:
            first = sources[target][target_port]
            assert first is not None
            raise GraphError(
                f"{graph}: input port {nodes[target].inputs[target_port]!r} of "
                f"{nodes[target].describe()} has two producers, {nodes[first[0]].name} and "
                f"{nodes[source].name}; join them with a Phi"
            )
        sources[target][target_port] = (source, source_port)
        targets[source][source_port] = (target, target_port)
    _require_no_gap(graph, nodes, sources, "input")
    _require_no_gap(graph, nodes, targets, "output")
    return sources, targets  # pyright: ignore[reportReturnType]  # no None is left


def _require_no_gap(
    graph: str, nodes: list[Node], partners: list[list[tuple[int, int] | None]], side: str
) -> None:
    for node, ports in zip(nodes, partners, strict=True):
        for port, partner in enumerate(ports):
            if partner is None:
                name = (node.inputs if side == "input" else node.outputs)[port]
                remedy = "feed it with connect()" if side == "input" else "give its wire to a node"
                raise GraphError(
                    f"{graph}: {side} port {name!r} of {node.describe()} is not connected; {remedy}"
                )


def require_phi_in_loops(graph: Wired) -> None:
    """Check that every cycle passes through a node that joins without waiting, a `Phi`.

    Raises:
        GraphError: a cycle has none, so that its first message could never arrive.
    """
    joins = {i for i, node in enumerate(graph.nodes) if not node.waits_for_all}
    colour = [0] * len(graph.nodes)  # 0 unseen, 1 on the path, 2 done
    for start in range(len(graph.nodes)):
        stack = [(start, iter(graph.targets[start]))] if not colour[start] else []
        colour[start] = 1 if stack else colour[start]
        while stack:
            node, successors = stack[-1]
            for target, _port in successors:
                if target in joins or colour[target] == 2:
                    continue
                if colour[target] == 1:
                    path = [n for n, _ in stack]
                    loop = " -> ".join(graph.nodes[n].name for n in path[path.index(target) :])
                    raise GraphError(
                        f"{graph.name}: the loop {loop} -> {graph.nodes[target].name} has no Phi; "
                        "a loop starts at a Phi that joins its first input and what comes around"
                    )
                colour[target] = 1
                stack.append((target, iter(graph.targets[target])))
                break
            else:
                colour[node] = 2
                stack.pop()


def infer_shapes(graph: Wired) -> None:
    """Propagate payload shapes through every port until all are known and agree.

    Raises:
        GraphError: from a node's `check`, with the producers of its inputs named; or a port's
            shape cannot be known because nothing reaches it.
    """
    known: list[list[Shape | None]] = [[None] * len(node.inputs) for node in graph.nodes]
    waiting = list(range(len(graph.nodes)))
    visited = [False] * len(graph.nodes)
    while waiting:
        index = waiting.pop(0)
        node, shapes = graph.nodes[index], known[index]
        is_ready = None not in shapes or (
            not node.waits_for_all and any(s is not None for s in shapes)
        )
        if not is_ready:
            continue
        visited[index] = True
        outputs = _check(graph, index, tuple(shapes))
        for (target, port), shape in zip(graph.targets[index], outputs, strict=True):
            if known[target][port] != shape:
                known[target][port] = shape
                waiting.append(target)
    for index, node in enumerate(graph.nodes):
        if not visited[index]:
            raise GraphError(
                f"{graph.name}: no message ever reaches {node.describe()}; "
                "follow its inputs back, one of them must come from the controller"
            )


def _check(graph: Wired, index: int, shapes: tuple[Shape | None, ...]) -> tuple[Shape, ...]:
    try:
        return graph.nodes[index].check(shapes)
    except GraphError as error:
        producers = [graph.nodes[source].name for source, _port in graph.sources[index]]
        raise GraphError(f"{graph.name}: {error} (fed by {', '.join(producers)})") from None


def mark_gradients(graph: Wired) -> None:
    """Tell each node which inputs need a gradient; at a first layer, none does.

    Where a `Phi` joins what depends on parameters with what does not, it knows by the state which
    of the two a message is; so do, through it, the nodes that get its messages with their state.
    """
    learns = [node.is_parameterized for node in graph.nodes]
    changed = True
    while changed:
        changed = False
        for index, targets in enumerate(graph.targets):
            for target, _port in targets if learns[index] else ():
                if not learns[target]:
                    learns[target] = changed = True
    deciders: dict[int, tuple[Node, ...]] = {}
    for node, sources in zip(graph.nodes, graph.sources, strict=True):
        node.input_needs_gradient = tuple(learns[source] for source, _port in sources)
        node.decided_by = tuple(_deciders(graph, source, learns, deciders) for source, _ in sources)


def _deciders(
    graph: Wired, index: int, learns: list[bool], known: dict[int, tuple[Node, ...]]
) -> tuple[Node, ...]:
    """Return the nodes that know whether a message that node `index` sent depends on parameters.

    None of them, where all that it sends does, or none.
    """
    if index in known:
        return known[index]
    known[index] = ()  # of a loop that leads back here without a change of state: all are alike
    node = graph.nodes[index]
    if node.is_parameterized or not node.keeps_state or not learns[index]:
        return ()
    sources = [source for source, _port in graph.sources[index]]
    above = [_deciders(graph, source, learns, known) for source in sources]
    # one input that always depends on parameters settles it, unless only one input is passed on
    always = [learns[source] and not nodes for source, nodes in zip(sources, above, strict=True)]
    if node.waits_for_all:
        found = () if any(always) else tuple(dict.fromkeys(n for nodes in above for n in nodes))
    else:
        found = () if all(always) else (node,)
    known[index] = found
    return found
