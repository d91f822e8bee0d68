"""Parameters of a module, and how those of a model lie in them: there, and back again."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial, reduce
from typing import Any, Final, TypeAlias

import numpy as np

from ampsim.interop.plan import Ref

WRAPPED: Final = "module."
"""Prefix of names of the user's module within what is exported."""

Way: TypeAlias = Callable[[np.ndarray], np.ndarray]
"""From an array to a view of it, or to a copy of its numbers in another order."""


@dataclass(frozen=True)
class Laid:
    """The parameters of the module that a node's parameter is, and how they lie in it."""

    names: tuple[str, ...]  # of the module's
    way: Callable[..., np.ndarray] = np.ravel  # puts their numbers into the order of the node's

    def ours(self, theirs: Mapping[str, np.ndarray]) -> np.ndarray:
        """The node's, up to its shape."""
        return self.way(*(theirs[name] for name in self.names))


def numbered(arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Arrays of these shapes in which each number is its place, all arrays one after the other."""
    stops = itertools.accumulate(one.size for one in arrays.values())
    return {
        name: np.arange(stop - one.size, stop).reshape(one.shape)
        for (name, one), stop in zip(arrays.items(), stops, strict=True)
    }


@dataclass(frozen=True, eq=False)
class ModuleState:
    """A module's state_dict as it was imported, and where its parameters are in a model."""

    arrays: Mapping[str, np.ndarray]  # by the module's names, buffers among them
    first_names: Mapping[str, str]  # of each parameter, the first name of the same tensor
    layouts: Mapping[str, Laid]  # how the model's parameters lie in them, by names in the model

    def theirs(self, ours: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """The state_dict with the model's numbers; buffers are as they were."""
        learned = {name: self.arrays[name] for laid in self.layouts.values() for name in laid.names}
        places = numbered(learned)
        flat = np.concatenate([one.ravel() for one in learned.values()])
        for name, laid in self.layouts.items():
            flat[laid.ours(places).ravel()] = ours[name].ravel()
        state = {**self.arrays, **{name: flat[place] for name, place in places.items()}}
        return state | {name: state[first] for name, first in self.first_names.items()}


def module_state(module: Any, layouts: Mapping[str, Laid]) -> ModuleState:
    """The state of a module of which a model has these parameters."""
    arrays = {name: one.detach().numpy().copy() for name, one in module.state_dict().items()}
    return ModuleState(arrays, first_names(module), layouts)


def first_names(module: Any) -> dict[str, str]:
    """For each name of a parameter the first of the same tensor, as of a layer with two names."""
    seen: dict[int, str] = {}
    named = module.named_parameters(remove_duplicate=False)
    return {name: seen.setdefault(id(values), name) for name, values in named}


Layout: TypeAlias = dict[str, Laid]
"""For each parameter of a node, without the node's name, how it lies."""


@dataclass(frozen=True)
class Learned:
    """A parameter of the module, or a view of one, with its first values."""

    name: str  # of the parameter
    values: np.ndarray  # of the view
    ways: tuple[Way, ...] = ()  # from the parameter to the view, one after the other
    wired: Callable[[], Ref] | None = None  # gives what brings a view that is no layer's weight

    def seen(self, way: Way, wired: Callable[[], Ref] | None = None) -> Learned:
        """A view of it."""
        return Learned(self.name, way(self.values), (*self.ways, way), wired)

    def laid(self, way: Way = np.ravel) -> Laid:
        """Lay it into a parameter of a node."""
        return laid_together([self], way)


def laid_together(parts: Sequence[Learned], way: Callable[..., np.ndarray]) -> Laid:
    """Lay several parameters together into one of a node."""
    ways = [one.ways for one in parts]
    return Laid(tuple(one.name for one in parts), partial(_laid, way, ways))


def _laid(way: Callable[..., Any], ways: list[tuple[Way, ...]], *arrays: np.ndarray) -> Any:
    """Views of arrays, laid together."""
    views = [
        reduce(lambda view, change: change(view), changes, array)
        for changes, array in zip(ways, arrays, strict=True)
    ]
    return way(*views)


def specs_of(program: Any) -> list[tuple[Any, Any]]:
    """Placeholders of an exported program with what its signature says of them."""
    holders = program.graph.find_nodes(op="placeholder")
    return list(zip(holders, program.graph_signature.input_specs, strict=True))


def held_in(module: Any, program: Any) -> dict[str, Learned | np.ndarray]:
    """Parameters, buffers and constants of an exported program, by their placeholders' names."""
    first, found = first_names(module), dict[str, Any]()
    tensors = {**program.constants, **program.state_dict}
    for holder, spec in specs_of(program):
        if spec.kind.name == "USER_INPUT":
            continue
        values = tensors[spec.target].detach().numpy()
        is_learned = spec.kind.name == "PARAMETER"
        name = first.get(spec.target.removeprefix(WRAPPED), "")
        found[holder.name] = Learned(name, values) if is_learned else values
    return found
