"""Models from PyTorch, and back."""

from ampsim.interop.loops import LoopSteps, Position, after, each, loop, shared, stack, unstack, use
from ampsim.interop.model_file import write_model_file
from ampsim.interop.plan import for_each
from ampsim.interop.torch_model import from_torch, to_torch
from ampsim.interop.training import BatchList, held_arrays, split_of

__all__ = [
    "BatchList",
    "LoopSteps",
    "Position",
    "after",
    "each",
    "for_each",
    "from_torch",
    "held_arrays",
    "loop",
    "shared",
    "split_of",
    "stack",
    "to_torch",
    "unstack",
    "use",
    "write_model_file",
]
