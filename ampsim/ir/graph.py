"""Graphs: nodes and the wires between their ports, built as Figure 2 of the paper reads.

Its rules are checked before anything runs.

>>> from ampsim.ir import Graph
>>> from ampsim.nodes import Linear, ReLU, SoftmaxCrossEntropy
>>> graph = Graph("perceptron")
>>> image, label = graph.controller(image=("rows", 784), label=("rows",))
>>> hidden = graph.add(ReLU("relu"), graph.add(Linear("linear-1", 784, 100), image))
>>> logits = graph.add(Linear("linear-2", 100, 10), hidden)
>>> graph.end(SoftmaxCrossEntropy("loss"), logits, label)
>>> graph.verify()
>>> [node.name for node in graph.nodes]
['controller', 'linear-1', 'relu', 'linear-2', 'loss']
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from typing import TYPE_CHECKING, Any, TypeAlias

from ampsim.errors import GraphError
from ampsim.ir.control import Bcast, Cond, Phi
from ampsim.ir.message import Payload, Sends, State
from ampsim.ir.node import Node, ParameterizedNode, Shape
from ampsim.options import NODES_MAX
from ampsim.text import short

if TYPE_CHECKING:
    import networkx as nx


Ports: TypeAlias = "list[list[tuple[int, int]]]"


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


def require_phi_in_loops(graph: Graph) -> None:
    """Check that every cycle passes through a node that joins without waiting, a `Phi`.

    Raises:
        GraphError: a cycle has none, so that its first message could never arrive.
    """
    before = {
        index: [source for source, _port in sources] if node.waits_for_all else []
        for index, (node, sources) in enumerate(zip(graph.nodes, graph.sources, strict=True))
    }
    try:
        TopologicalSorter(before).prepare()
    except CycleError as error:
        loop: list[int] = error.args[1][:-1]  # the first stands last, too
        place = loop.index(min(loop))
        names = [graph.nodes[index].name for index in (*loop[place:], *loop[: place + 1])]
        raise GraphError(
            f"{graph.name}: the loop {' -> '.join(names)} has no Phi; "
            "a loop starts at a Phi that joins its first input and what comes around"
        ) from None


def infer_shapes(graph: Graph) -> None:
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


def _check(graph: Graph, index: int, shapes: tuple[Shape | None, ...]) -> tuple[Shape, ...]:
    node = graph.nodes[index]
    try:
        found: Any = node.check(shapes)
    except GraphError as error:
        producers = [graph.nodes[source].name for source, _port in graph.sources[index]]
        raise GraphError(f"{graph.name}: {error} (fed by {', '.join(producers)})") from None
    kinds: Any = [type(one) for one in found] if type(found) in (tuple, list) else None
    if kinds != [tuple] * len(node.outputs):
        raise GraphError(
            f"{graph.name}: check of {node.describe()} must return a shape for each output "
            f"({', '.join(node.outputs) or 'none'}), such as [('rows', 3)], got {short(found)}"
        )
    return tuple(found)


def mark_gradients(graph: Graph) -> None:
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
    graph: Graph, index: int, learns: list[bool], known: dict[int, tuple[Node, ...]]
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


class Controller(Node):
    """Instances come from here: it has one output port for each thing that is pumped.

    `ampsim.model_parallel.controller` plays this node's part: it admits instances, and receives
    what returns. It lives on the host and takes no device's time.
    """

    inputs = ()

    def __init__(self, shapes: dict[str, Shape]) -> None:
        self.outputs = tuple(shapes)
        self._shapes = tuple(shapes.values())
        super().__init__("controller")

    def forward(self, port: int, state: State, payload: Payload) -> Sends:
        """Nothing is ever sent forward to the controller."""
        raise AssertionError("the controller has no inputs")

    def backward(self, port: int, state: State, gradient: Payload) -> Sends:
        """Take back what was pumped."""
        return ()

    def check(self, shapes: tuple[Shape | None, ...]) -> tuple[Shape, ...]:
        """Return the declared shapes."""
        return self._shapes


@dataclass(frozen=True, slots=True)
class Wire:
    """An output port of a node, to be given to the consumer of what it sends."""

    node: Node
    port: int


class Graph:
    """A static, instance-independent graph under construction, or verified and ready to run.

    Attributes:
        nodes: in the order of being added; the controller first.
        targets: for each node's index, per output port, (index, input port) of its consumer.
        sources: for each node's index, per input port, (index, output port) of its producer.
        replica_groups: nodes whose parameters are averaged at the end of an epoch (Section 5).
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.nodes: list[Node] = []
        self.replica_groups: list[list[ParameterizedNode]] = []
        self._index: dict[str, int] = {}
        self._edges: list[tuple[Wire, Node, int]] = []
        self._is_verified = False
        self.targets: list[list[tuple[int, int]]] = []
        self.sources: list[list[tuple[int, int]]] = []

    def controller(self, **shapes: Shape) -> tuple[Wire, ...]:
        """Declare what the controller pumps; return a wire for each, in the order given.

        Args:
            shapes: for each port, the payload's shape; a name stands for an extent that an
                instance decides, such as ``rows``.
        """
        return self._enter(Controller(shapes))

    def add(self, node: Node, *wires: Wire) -> Wire:
        """Add a node with one output, fed by `wires` in the order of its input ports.

        A loop's second input is joined later with `connect`.

        Returns:
            The output's wire.

        Raises:
            GraphError: the name is taken, there are more wires than input ports, or the node has
                not just one output.
        """
        if len(node.outputs) != 1:
            raise GraphError(
                f"{self.name}: add() is for nodes with one output, got {node.describe()} with "
                f"{len(node.outputs)}; try {'branch' if node.outputs else 'end'}()"
            )
        (output,) = self.branch(node, *wires)
        return output

    def branch(self, node: Node, *wires: Wire) -> tuple[Wire, ...]:
        """Add a node with any number of outputs; return the wire of each.

        Raises:
            GraphError: the name is taken, or there are more wires than input ports.
        """
        if len(wires) > len(node.inputs):
            raise GraphError(
                f"{self.name}: {node.describe()} has {len(node.inputs)} input port"
                f"{'s' * (len(node.inputs) != 1)} ({', '.join(node.inputs) or 'none'}), "
                f"got {len(wires)} wires; join several into one port with a Phi or Concat"
            )
        outputs = self._enter(node)
        for port, wire in enumerate(wires):
            self._edges.append((wire, node, port))
        return outputs

    def end(self, node: Node, *wires: Wire) -> None:
        """Add a node without output, such as a loss.

        Raises:
            GraphError: the name is taken, there are more wires than input ports, or the node has
                outputs.
        """
        if node.outputs:
            raise GraphError(
                f"{self.name}: end() is for nodes without output, got {node.describe()} with "
                f"{len(node.outputs)}; try {'add' if len(node.outputs) == 1 else 'branch'}()"
            )
        self.branch(node, *wires)

    def replicate(
        self, name: str, count: int, make: Callable[[str], ParameterizedNode], wire: Wire
    ) -> Wire:
        """Add `count` copies of a node between a `Cond` on instance mod n and a `Phi` (Figure 4b).

        Copies start from equal parameters and are averaged at the end of an epoch (Section 5).
        One copy is just the node. What is validated on the clock is numbered, too: which copy meets
        a batch of a later epoch hangs on how many instances that were.

        Args:
            name: of the node; copies are called ``NAME.0``, ``NAME.1`` and so on.
            count: how many copies.
            make: builds a copy of a given name.
            wire: feeds the chosen copy.

        Raises:
            GraphError: `count` is below 1.
        """
        if count < 1:
            raise GraphError(f"{self.name}: replicas of {name} must be >= 1, got {count}")
        if count == 1:
            return self.add(make(name), wire)
        names = tuple(f"{name}.{replica}" for replica in range(count))
        copies = [make(copy) for copy in names]
        for copy in copies:
            copy.seed_name = name
        choose = Cond(f"{name}-choose", _round_robin(names), names)
        ways = self.branch(choose, wire)
        results = [self.add(copy, way) for copy, way in zip(copies, ways, strict=True)]
        self.replica_groups.append(copies)
        return self.add(Phi(f"{name}-merge", names), *results)

    def connect(self, wire: Wire, node: Node, port: str) -> None:
        """Feed input `port` of `node` from `wire`; this is how a loop is closed.

        Raises:
            GraphError: the node has no such port.
        """
        if port not in node.inputs:
            raise GraphError(
                f"{self.name}: {node.describe()} has no input port {port!r}; "
                f"its ports: {', '.join(node.inputs)}"
            )
        self._is_verified = False
        self._edges.append((wire, node, node.inputs.index(port)))

    def _enter(self, node: Node) -> tuple[Wire, ...]:
        if node.name in self._index:
            other = self[node.name]
            kinds = f"{type(other).__name__} and {type(node).__name__}"
            raise GraphError(
                f"{self.name}: two nodes are named {node.name!r} ({kinds}); rename one of them"
            )
        if len(self.nodes) >= NODES_MAX:
            raise GraphError(
                f"{self.name}: a graph has at most {NODES_MAX:,} nodes, got more at {node.name!r}; "
                "take fewer replicas or layers"
            )
        self._is_verified = False
        self._index[node.name] = len(self.nodes)
        self.nodes.append(node)
        return tuple(Wire(node, port) for port in range(len(node.outputs)))

    def __getitem__(self, name: str) -> Node:
        return self.nodes[self._index[name]]

    def index(self, node: Node) -> int:
        """Return the place of `node` in `nodes`."""
        return self._index[node.name]

    @property
    def parameterized(self) -> list[ParameterizedNode]:
        """The nodes that learn, in the order of being added."""
        return [node for node in self.nodes if isinstance(node, ParameterizedNode)]

    def verify(self) -> None:
        """Wire the ports and check every rule of the representation; idempotent.

        A wire with several consumers gets a `Bcast`, which sums what comes back.

        Raises:
            GraphError: no controller, a node that was not added, a port without partner or with
                several producers, a loop without `Phi`, shapes that do not fit.
        """
        if self._is_verified:
            return
        if not self.nodes or not isinstance(self.nodes[0], Controller):
            raise GraphError(
                f"{self.name}: expected the controller first, got "
                f"{self.nodes[0].describe() if self.nodes else 'an empty graph'}; "
                "call controller() before add()"
            )
        self._broadcast_shared_wires()
        sources, targets = require_connected(self.name, self.nodes, self._endpoints())
        self.sources, self.targets = sources, targets
        require_phi_in_loops(self)
        infer_shapes(self)
        mark_gradients(self)
        self._is_verified = True

    def _broadcast_shared_wires(self) -> None:
        uses: dict[Wire, list[int]] = {}
        for place, (wire, _node, _port) in enumerate(self._edges):
            uses.setdefault(wire, []).append(place)
        for wire, places in uses.items():
            if len(places) == 1:
                continue
            port = f"-{wire.node.outputs[wire.port]}" if len(wire.node.outputs) > 1 else ""
            copies = self.branch(Bcast(f"{wire.node.name}{port}-bcast", len(places)), wire)
            for copy, place in zip(copies, places, strict=True):
                _wire, consumer, consumer_port = self._edges[place]
                self._edges[place] = (copy, consumer, consumer_port)

    def _endpoints(self) -> list[tuple[int, int, int, int]]:
        for wire, consumer, _port in self._edges:
            for node in (wire.node, consumer):
                if node.name not in self._index or self[node.name] is not node:
                    raise GraphError(
                        f"{self.name}: {node.describe()} is on the wire {wire.node.name} -> "
                        f"{consumer.name} but not in the graph; add() it first"
                    )
        return [
            (self.index(wire.node), wire.port, self.index(node), port)
            for wire, node, port in self._edges
        ]

    def to_networkx(self) -> nx.MultiDiGraph[str]:
        """Return the graph for drawing and analysis: kinds on nodes, port names on edges."""
        import networkx as nx

        self.verify()
        drawn: nx.MultiDiGraph[str] = nx.MultiDiGraph(name=self.name)
        for node in self.nodes:
            drawn.add_node(node.name, kind=type(node).__name__, is_heavy=node.is_parameterized)
        for node, targets in zip(self.nodes, self.targets, strict=True):
            for port, (target, target_port) in enumerate(targets):
                consumer = self.nodes[target]
                drawn.add_edge(
                    node.name,
                    consumer.name,
                    source_port=node.outputs[port],
                    target_port=consumer.inputs[target_port],
                )
        return drawn


def _round_robin(names: tuple[str, ...]) -> Callable[[State], str]:
    """Return the query ``Cond modId``: the name whose place is the instance modulo their number."""

    def query(state: State) -> str:
        instance: int = state[0]
        return names[instance % len(names)]

    return query
