"""Many questions: what binds, what each thing would buy, and which hardware an answer needs."""

from ampsim.exploring.exploration import Exploration
from ampsim.exploring.explore import explore

__all__ = [
    "Exploration",
    "explore",
]
