"""The intermediate representation: messages, states, nodes, graphs."""

from ampsim.ir.bcast import Bcast
from ampsim.ir.cond import Cond
from ampsim.ir.graph import Controller, Graph, Wire
from ampsim.ir.isu import Isu
from ampsim.ir.loss import Evaluated, LossNode, LossReport
from ampsim.ir.message import Direction, Payload, Pumped, Send, Sends, Standin, State
from ampsim.ir.node import SINGLE_BYTES, Join, Node, ParameterizedNode, Shape
from ampsim.ir.partition import Partition
from ampsim.ir.phi import Phi
from ampsim.ir.work import NO_WORK, Work

__all__ = [
    "NO_WORK",
    "SINGLE_BYTES",
    "Bcast",
    "Cond",
    "Controller",
    "Direction",
    "Evaluated",
    "Graph",
    "Isu",
    "Join",
    "LossNode",
    "LossReport",
    "Node",
    "ParameterizedNode",
    "Partition",
    "Payload",
    "Phi",
    "Pumped",
    "Send",
    "Sends",
    "Shape",
    "Standin",
    "State",
    "Wire",
    "Work",
]
