"""Many questions: what binds, what each thing would buy, and which hardware an answer needs."""

from ampsim.exploring.exploration import Exploration
from ampsim.exploring.explore import explore
from ampsim.exploring.search import search
from ampsim.exploring.searched import Searched

__all__ = [
    "Exploration",
    "Searched",
    "explore",
    "search",
]
