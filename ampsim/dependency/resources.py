"""Resources that operations mutate: generators of random numbers, and workspace."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

import numpy as np
from annotated_types import Ge, Le

from ampsim.arguments import checked
from ampsim.dependency.engine import DependencyEngine
from ampsim.dependency.operation import Variable
from ampsim.dependency.places import WORKSPACE, Place
from ampsim.dependency.refusals import require_function, size_of, variables_of
from ampsim.ir.work import Work
from ampsim.rng import stream


class Random:
    """A generator of random numbers: a draw mutates it, so that draws come in push order.

    Args:
        engine: pushes the draws.
        seed: of its numbers.
        index: which of several generators of that seed.

    Attributes:
        variable: stands for the generator's state.
        generator: NumPy's, for functions that mutate `variable`.
    """

    @checked
    def __init__(self, engine: DependencyEngine, seed: int = 0, index: int = 0) -> None:
        self.variable = engine.new_variable(f"random {index}")
        self.generator = stream(seed, "dependency", index)
        self._engine = engine

    def draw(
        self,
        use: Callable[[np.random.Generator], Any],
        mutates: tuple[Variable, ...] | list[Variable] = (),
        *,
        on: Place = 0,
        work: Work | None = None,
        name: str = "draw",
    ) -> None:
        """Push an operation that draws: `use` gets the generator when it starts.

        Raises:
            OptionError: as for `DependencyEngine.push`.
        """
        require_function(use)
        generator, others = self.generator, variables_of(mutates, "mutates")
        self._engine.push(
            lambda: use(generator), mutates=(self.variable, *others), on=on, work=work, name=name
        )


class Workspace:
    """Buffers for what operations need only while they run, handed out in turn.

    An operation mutates the variable of its buffer, so at most as many run at a time as there are
    buffers. A buffer grows to the largest request, and stays so until `delete`.

    Args:
        engine: pushes their growth.
        place: in whose memory they lie.
        copies: how many there are.

    Source: MXNet's resource manager (`src/resource.cc`), with one copy for a GPU and four for a CPU
    unless told otherwise.

    Raises:
        OptionError: an argument is none of these.
    """

    @checked
    def __init__(
        self,
        engine: DependencyEngine,
        place: int | str = 0,
        copies: Annotated[int, Ge(1), Le(10_000)] = 1,
    ) -> None:
        self._engine = engine
        self._memory = engine.memory(place)  # pyright: ignore[reportArgumentType]  # asked there
        self._place = engine.place(place)  # pyright: ignore[reportArgumentType]  # likewise
        self._variables = [engine.new_variable(f"workspace {one}") for one in range(copies)]
        self._pushed_bytes = [0] * copies
        self._held_bytes = [0] * copies
        self._turn = 0

    def request(self, size_bytes: int) -> Variable:
        """Hand out the next buffer, at least that large: a variable for `mutates` of one push.

        Where the buffer has to grow, that is an operation of its own, which takes no time.

        Raises:
            OptionError: the size is no count of bytes, or the workspace was deleted.
        """
        size_bytes = size_of(size_bytes)
        place = self._turn
        self._turn = (place + 1) % len(self._variables)
        variable = self._variables[place]
        if size_bytes > self._pushed_bytes[place]:
            self._pushed_bytes[place] = size_bytes
            self._engine.push(
                lambda: self._grow(place, size_bytes),
                mutates=[variable],
                on=self._place,
                name=f"{variable.name} grows",
            )
        return variable

    def delete(self) -> None:
        """Push the end of all buffers: their memory is given back when their last use has ended."""
        for place, variable in enumerate(self._variables):
            self._engine.delete_variable(variable, lambda place=place: self._grow(place, 0))

    def _grow(self, place: int, size_bytes: int) -> None:
        self._memory.change(WORKSPACE, size_bytes - self._held_bytes[place])
        self._held_bytes[place] = size_bytes
