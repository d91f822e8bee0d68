"""Models from PyTorch and back."""

from ampsim.interop.loops import Position, Steps, after, each, loop, shared, stack, unstack, use
from ampsim.interop.torch_model import from_torch, to_torch

__all__ = [
    "Position",
    "Steps",
    "after",
    "each",
    "from_torch",
    "loop",
    "shared",
    "stack",
    "to_torch",
    "unstack",
    "use",
]
