"""Models from PyTorch and ONNX, and back."""

from ampsim.interop.loops import LoopSteps, Position, after, each, loop, shared, stack, unstack, use
from ampsim.interop.model_file import write_model_file
from ampsim.interop.onnx_model import from_onnx, to_onnx
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
    "from_onnx",
    "from_torch",
    "held_arrays",
    "loop",
    "shared",
    "split_of",
    "stack",
    "to_onnx",
    "to_torch",
    "unstack",
    "use",
    "write_model_file",
]
