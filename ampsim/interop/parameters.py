"""Parameters of a module, and how those of a model lie in them: there, and back again.

All numbers that a module learns stand in one vector, one tensor after the other. Where a parameter,
a view of one, or a parameter of a node lies is an array of their places in it, of its shape.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import numpy as np

from ampsim.interop.plan import Ref

WRAPPED: Final = "module."
"""Prefix of names of the user's module within what is exported."""

Way: TypeAlias = Callable[[np.ndarray], np.ndarray]
"""From an array to a view of it, or to a copy of its numbers in another order."""

Layout: TypeAlias = dict[str, np.ndarray]
"""For each parameter of a node, without the node's name, the places of its numbers in order."""


def places_in(module: Any) -> dict[str, np.ndarray]:
    """The places of each parameter, by name; one tensor of two names has those of the first."""
    places, of_tensors, count = dict[str, np.ndarray](), dict[int, np.ndarray](), 0
    for name, values in module.named_parameters(remove_duplicate=False):
        if id(values) not in of_tensors:
            size: int = values.numel()
            own = np.arange(count, count + size).reshape(tuple(values.shape))
            of_tensors[id(values)], count = own, count + size
        places[name] = of_tensors[id(values)]
    return places


@dataclass(frozen=True, eq=False)
class ModuleState:
    """A module's state_dict as it was imported, and where its parameters are in a model."""

    arrays: Mapping[str, np.ndarray]  # by the module's names, buffers among them
    places: Mapping[str, np.ndarray]  # of the module's parameters
    layouts: Mapping[str, np.ndarray]  # of the model's parameters, by their names

    def theirs(self, ours: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """The state_dict with the model's numbers; buffers are as they were."""
        numbers = self._numbers()
        for name, places in self.layouts.items():
            numbers[places.ravel()] = ours[name].ravel()
        return {**self.arrays, **{name: numbers[places] for name, places in self.places.items()}}

    def ours(self, name: str) -> np.ndarray:
        """The first numbers of a parameter of the model, up to its shape."""
        return self._numbers()[self.layouts[name]]

    def _numbers(self) -> np.ndarray:
        """All numbers that are learned, as they were imported."""
        arrays = {id(at): self.arrays[name].ravel() for name, at in self.places.items()}
        return np.concatenate([*arrays.values()])


def module_state(module: Any, layouts: Mapping[str, np.ndarray]) -> ModuleState:
    """The state of a module of which a model has these parameters."""
    arrays = {name: one.detach().numpy().copy() for name, one in module.state_dict().items()}
    return ModuleState(arrays, places_in(module), layouts)


@dataclass(frozen=True)
class Learned:
    """A parameter of the module, or a view of one."""

    name: str  # of the parameter
    places: np.ndarray
    wired: Callable[[], Ref] | None = None  # gives what brings a view that is no layer's weight


def specs_of(program: Any) -> list[tuple[Any, Any]]:
    """Placeholders of an exported program with what its signature says of them."""
    holders = program.graph.find_nodes(op="placeholder")
    return list(zip(holders, program.graph_signature.input_specs, strict=True))


def held_in(module: Any, program: Any) -> dict[str, Learned | np.ndarray]:
    """Parameters, buffers and constants of an exported program, by their placeholders' names."""
    places, found = places_in(module), dict[str, Any]()
    first_names = {id(at): name for name, at in reversed(places.items())}
    tensors = {**program.constants, **program.state_dict}
    for holder, spec in specs_of(program):
        if spec.kind.name == "USER_INPUT":
            continue
        own = places.get(spec.target.removeprefix(WRAPPED))
        if spec.kind.name == "PARAMETER" and own is not None:
            found[holder.name] = Learned(first_names[id(own)], own)
        else:
            found[holder.name] = tensors[spec.target].detach().numpy().copy()
    return found
