"""PyTorch, the oracle of gradients and optimizers.

A test module that imports it is skipped where it is not installed. The extra `dev` does not bring
it: without a version it takes gigabytes.
"""

from __future__ import annotations

from typing import Any

import pytest

torch: Any = pytest.importorskip(
    "torch", reason="PyTorch is the oracle, and `dev` has it not; pip install torch==2.13.0"
)
