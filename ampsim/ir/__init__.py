"""The intermediate representation: messages, states, nodes, graphs."""

from ampsim.ir.control import Bcast, Cond, Isu, Phi
from ampsim.ir.graph import Controller, Graph, Wire
from ampsim.ir.loss import Evaluated, LossNode, LossReport
from ampsim.ir.message import Direction, Payload, Pumped, Send, Sends, Standin, State, standin
from ampsim.ir.node import SINGLE_BYTES, CachingNode, Join, Node, ParameterizedNode, Shape
from ampsim.ir.partition import Partition
from ampsim.ir.work import NO_WORK, Work

__all__ = [
    "NO_WORK", "SINGLE_BYTES", "Bcast", "CachingNode", "Cond", "Controller", "Direction",
    "Evaluated", "Graph", "Isu", "Join", "LossNode", "LossReport", "Node", "ParameterizedNode",
    "Partition", "Payload", "Phi", "Pumped", "Send", "Sends", "Shape", "Standin", "State", "Wire",
    "Work", "standin",
]  # fmt: skip
