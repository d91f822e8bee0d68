"""Graphs: nodes and the wires between their ports, built as Figure 2 of the paper reads.

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
from typing import TYPE_CHECKING

from ampsim.errors import GraphError
from ampsim.ir import verify as rules
from ampsim.ir.bcast import Bcast
from ampsim.ir.cond import Cond
from ampsim.ir.message import Payload, Sends, State
from ampsim.ir.node import Node, ParameterizedNode, Shape
from ampsim.ir.phi import Phi
from ampsim.ir.verify import infer_shapes, mark_gradients, require_connected, require_phi_in_loops

if TYPE_CHECKING:
    import networkx as nx


class Controller(Node):
    """Where instances come from: one output port for each thing that is pumped.

    `ampsim.model_parallel.controller` plays this node's part: it admits instances, and receives
    what returns. It lives on the host and takes no device's time.
    """

    inputs = ()

    def __init__(self, shapes: dict[str, Shape]) -> None:
        """Declare what is pumped: port names and payload shapes."""
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
        """Start empty."""
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
        One copy is just the node.

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
        rules.require_few(self.name, len(self.nodes), node)
        self._is_verified = False
        self._index[node.name] = len(self.nodes)
        self.nodes.append(node)
        return tuple(Wire(node, port) for port in range(len(node.outputs)))

    def __getitem__(self, name: str) -> Node:
        """Return the node of that name."""
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
