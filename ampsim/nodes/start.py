"""What parameters start from, where a model says it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import numpy as np

Start: TypeAlias = Callable[[np.random.Generator], np.ndarray]
"""Draws a first weight, in its own shape, from the run's stream for that node."""
