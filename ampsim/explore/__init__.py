"""Many questions: what binds, what each thing would buy, and which hardware an answer needs."""

from ampsim.explore.explore import Exploration, explore

__all__ = [
    "Exploration",
    "explore",
]
