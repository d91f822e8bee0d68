"""A graph cut over devices: where each node runs, and what joins the parts.

An edge from one worker to another becomes a Send and a Recv, one pair for each tensor and each
worker that reads it. A worker that receives something within a loop has a control loop of its own
(Enter, Merge, Switch, NextIteration): its Merge lets the Recvs of an iteration begin, and the
predicate, which is sent to every participant, lets the next one begin or ends it. No participant
waits for another at the end of an iteration.

Source: Yu et al. (2018), Section 4.4 and Figure 6; nesting is as in TensorFlow's
`core/graph/graph_partition.cc`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np

from ampsim.dataflow import operator as op
from ampsim.dataflow.graph import Context, FlowGraph, Loop, Node, Tensor, output_of
from ampsim.dataflow.operator import BOOL, RESOURCE, Operator
from ampsim.errors import OptionError, one_of
from ampsim.hardware import Cluster

_EVERYWHERE: Final = (op.CONSTANT, op.ENTER_CONSTANT)
"""What has no place: there is one on each worker that reads it."""

_OF_VARIABLE: Final = ("assign", "assign_rows", op.STEP)
"""What is on the worker of the variable that it changes, and of what an optimizer keeps of it."""

Placement = Mapping[str, int | str]
"""Devices of nodes, by name; a device is the number of a worker, or the name of its device."""


def worker_of(device: int | str, cluster: Cluster, what: str) -> int:
    """The worker that a device is.

    Raises:
        OptionError: it is none of the cluster, or several workers have a device of that name.
    """
    count = cluster.workers
    if isinstance(device, str):
        names = [one.name for one in cluster.devices]
        if device not in names:
            raise OptionError(f"{what}: {one_of('device', device, dict.fromkeys(names))}")
        if names.count(device) > 1:
            raise OptionError(
                f"{what}: {names.count(device)} workers have a device {device!r}; give the number "
                f"of one, 0 to {count - 1}"
            )
        return names.index(device)
    if not 0 <= device < count:
        workers = "worker 0 alone" if count == 1 else f"workers 0 to {count - 1}"
        raise OptionError(f"{what}: device must be one of {cluster.name}, {workers}, got {device}")
    return device


class NodePlaces:
    """The worker of each node.

    A node is where the user says, by its name or by the `flow.device` in which it was built; what
    is built for the gradient of one is where that is; all others are on worker 0. What assigns or
    steps a variable is where that is. What uses a stack or an array is where that is: an array
    where it was made, a stack where what is saved was computed. Control flow follows what it
    forwards: a Switch, an Exit and the Merge of a `cond` are where that is computed, Enter, Merge
    and NextIteration of a loop variable where the body computes it, or where it starts if the body
    hands it on as it is.

    Raises:
        OptionError: a device is none of the cluster, or a name none of a node that has a place, or
            of what changes a variable.
    """

    def __init__(self, nodes: Sequence[Node], cluster: Cluster, placement: Placement) -> None:
        self._cluster = cluster
        self._worker: dict[Node, int | None] = {}
        self._merge = {
            one.node: node
            for node in nodes
            if node.operator is op.MERGE and "loop" in node.attributes
            for one in node.inputs
        }
        self._named = self._checked(nodes, placement)
        self._home = self._homes(nodes)
        for node in nodes:
            self.worker(node)

    def worker(self, node: Node) -> int:
        """Return the worker that runs a node."""
        return self._found(node) or 0

    def _found(self, node: Node) -> int | None:
        if node not in self._worker:
            self._worker[node] = None  # a variable that is handed round in a loop comes back to it
            found = self._worker[node] = self._look_up(node)
            if found is None:  # and is then looked up again, from where it starts
                del self._worker[node]
            return found
        return self._worker[node]

    def _look_up(self, node: Node) -> int | None:
        if node in self._home:
            return self._of_resource(self._home[node])
        if node in self._named:
            return self._named[node]
        operator = node.operator
        if node in self._merge:
            return self.worker(self._merge[node])
        if operator is op.MERGE and "loop" in node.attributes:
            enter, back = (one.node.inputs[0].node for one in node.inputs)
            found = self._found(back)
            return self._found(enter) if found is None else found
        if operator is op.MERGE:
            false, true = (self._found(one.node) for one in node.inputs)
            return false if true is None else true
        if operator in (op.SWITCH, op.EXIT, op.ENTER_CONSTANT):
            return self._found(node.inputs[0].node)
        if operator is op.CONSTANT or node.device is None:
            return 0
        if isinstance(node.device, Node):
            return self._found(node.device)
        return worker_of(node.device, self._cluster, node.told)

    def _checked(self, nodes: Sequence[Node], placement: Placement) -> dict[Node, int]:
        changed = {
            node: node.device
            for node in nodes
            if node.operator.name in _OF_VARIABLE and isinstance(node.device, Node)
        }
        known = {
            node.name: node
            for node in (*nodes, *changed.values())
            if node.operator not in _EVERYWHERE and node not in self._merge
        }
        found: dict[Node, int] = {}
        for name, device in placement.items():
            if name not in known:
                raise OptionError(f"placement: {one_of('operator', name, known)}")
            if known[name] in changed:
                owner = changed[known[name]].name
                raise OptionError(f"placement: {name} is where its variable is; place {owner!r}")
            found[known[name]] = worker_of(device, self._cluster, f"placement of {name}")
        return found

    def _homes(self, nodes: Sequence[Node]) -> dict[Node, list[Node]]:
        """Group the nodes that share the handle of a stack or an array."""
        groups: dict[Node, list[Node]] = {}
        for node in nodes:
            for one in node.inputs:
                if one.dtype == RESOURCE:
                    first = groups.setdefault(one.node, [one.node])
                    second = groups.setdefault(node, [node])
                    if first is not second:
                        first += second
                        groups |= dict.fromkeys(second, first)
        return groups

    def _of_resource(self, group: list[Node]) -> int | None:
        """Choose the worker of a resource: by name, by its maker's device, or by what is pushed."""
        for node in group:
            if node in self._named:
                return self._named[node]
        for node in group:
            is_maker = all(one.dtype != RESOURCE for one in node.inputs)
            if is_maker and isinstance(node.device, int | str):
                return worker_of(node.device, self._cluster, node.told)
        saved = [node.inputs[1] for node in group if node.operator.name == "push"]
        for one in saved:
            if one.dtype != RESOURCE:
                return self._found(one.node)
        return 0


class Cut:
    """The nodes of each worker, with what joins them, so that `asked` can be computed.

    The first node beside the graph has the number `first`; by default the next after `nodes`.
    """

    def __init__(
        self, asked: Sequence[Tensor], places: NodePlaces, nodes: Sequence[Node],
        first: int | None = None,
    ) -> None:  # fmt: skip
        self.peers: dict[Node, tuple[Node, int]] = {}  # of each Send its Recv, and where that is
        self._places = places
        self._recv: dict[tuple[Tensor, int, bool], Tensor] = {}
        self._go: dict[tuple[Loop | None, int], Tensor] = {}
        self._copied: set[tuple[Node, int]] = set()
        self._worker: dict[Node, int] = {}
        behind = 1 + max((node.index for node in nodes), default=-1)
        self._more = FlowGraph(behind if first is None else first)
        self.beside = self._more.nodes  # not of the graph: Sends, Recvs and control loops
        placed = [(node, places.worker(node)) for node in nodes if node.operator not in _EVERYWHERE]
        self.placed: list[tuple[Node, int]] = placed  # as in the graph, what is beside it last
        for one in asked:
            self.local(one, self.home(one))
        for node, worker in placed:  # which grows
            for one in () if node.operator.only_waits else node.inputs:
                self.local(one, worker)
        for node, worker in placed:
            for one in node.controls:
                self.local(one, worker, is_signal=True)
            for one in node.inputs:
                self.local(one, worker, is_signal=node.operator.only_waits)
        placed.sort(key=lambda one: (one[0].index, one[1]))

    def home(self, tensor: Tensor) -> int:
        """The worker of a tensor."""
        return self._places.worker(tensor.node)

    def local(self, tensor: Tensor, worker: int, *, is_signal: bool = False) -> Tensor:
        """Return a tensor as a worker has it: itself, or the Recv of it.

        If it `is_signal`, the worker only waits for it.
        """
        node = tensor.node
        if node.operator in _EVERYWHERE and node not in self._worker:
            if (node, worker) not in self._copied:
                self._copied.add((node, worker))
                self.placed.append((node, worker))
            return tensor
        if self._where(node) == worker:
            return tensor
        if (tensor, worker, False) not in self._recv:
            go = self._begun(tensor.context.loop, worker)  # which may receive a predicate
            if (tensor, worker, False) not in self._recv:
                key = (tensor, worker, is_signal)
                if key not in self._recv:
                    self._recv[key] = self._received(tensor, worker, go, is_signal=is_signal)
                return self._recv[key]
        return self._recv[tensor, worker, False]

    def _where(self, node: Node) -> int:
        """The worker of a node, also of one beside the graph."""
        return self._worker[node] if node in self._worker else self._places.worker(node)

    def _received(
        self, tensor: Tensor, worker: int, go: Tensor | None, *, is_signal: bool
    ) -> Tensor:
        """A Send of a tensor and its Recv; the Recv's output."""
        is_handle = tensor.dtype == RESOURCE and not is_signal
        assert not is_handle, f"{tensor.node.told} has a handle that would be sent"
        name = tensor.node.name + (f":{tensor.output}" if tensor.output else "")
        name += " as a signal" if is_signal else ""
        at, source = tensor.context, self._where(tensor.node)
        told = {"name": f"send {name} to {worker}", "is_signal": is_signal}
        send = self._added(op.SEND, [tensor], told, source, like=tensor, context=at)
        told = {"name": f"recv {name} at {worker}"}
        recv = self._added(op.RECV, [], told, worker, like=tensor, context=at)
        recv.controls += [] if go is None else [go]
        self.peers[send] = (recv, worker)
        shape, dtype = ((), BOOL) if is_signal else (tensor.shape, tensor.dtype)
        return output_of(recv, shape, dtype, at)

    def _begun(self, loop: Loop | None, worker: int) -> Tensor | None:
        """Return a signal that comes on a worker once an iteration; None in the graph itself.

        It is of the state machine of one participant.
        """
        if loop is None:
            return None
        if (loop, worker) in self._go:
            return self._go[loop, worker]
        assert loop.outer is not None, "a loop has a context around it"
        start = self._begun(loop.outer.loop, worker)
        if start is None:
            start = self._start(worker)

        def added(operator: Operator, inputs: list[Tensor], context: Context) -> Node:
            told = {"loop": loop, "name": f"{operator.name} of {loop.name} at {worker}"}
            node = self._added(operator, inputs, told, worker, like=loop.predicate, context=context)
            output_of(node, (), BOOL, loop)
            return node

        enter = added(op.ENTER, [start], loop.outer)
        merge = added(op.MERGE, [enter.outputs[0]], loop)
        go = self._go[loop, worker] = merge.outputs[0]
        switch = added(op.SWITCH, [go, loop.predicate], loop)
        back = added(op.NEXT_ITERATION, [output_of(switch, (), BOOL, loop)], loop)
        merge.inputs.append(back.outputs[0])
        return go

    def _start(self, worker: int) -> Tensor:
        """Return the constant that starts the control loops of a worker."""
        if (None, worker) not in self._go:
            told = {"value": np.array(True), "name": f"start at {worker}"}
            node = self._added(op.CONSTANT, [], told, worker, like=None, context=self._more.root)
            self._go[None, worker] = output_of(node, (), BOOL, node.context)
        return self._go[None, worker]

    def _added(
        self, operator: Operator, inputs: list[Tensor], told: dict[str, Any], worker: int,
        *, like: Tensor | None, context: Context,
    ) -> Node:  # fmt: skip
        with self._more.building(context=context):
            node = Node(operator, inputs, told, self._more, like=like)
        self._worker[node] = worker
        self.placed.append((node, worker))
        return node
