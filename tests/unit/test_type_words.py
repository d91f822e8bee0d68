"""What `ampsim models NAME` says that an option may be."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Literal

from annotated_types import Ge
from pydantic import Field

from ampsim import load_model
from ampsim.assets import names
from ampsim.study.loading import types_in_words

Count = Annotated[int, Field(ge=1)]


@dataclass
class Config:
    layers: Count = 1
    width: Annotated[int, Field(ge=2, multiple_of=2)] = 2
    share: Annotated[float, Field(gt=0, lt=1, allow_inf_nan=False)] = 0.5
    rows: Annotated[int, Ge(3)] = 3
    kind: Literal["a", "b", "c"] = "a"
    only: Literal["x"] = "x"
    name: str = ""
    is_open: bool = False
    maybe: int | None = None
    bend: Callable[[float], float] = abs


def test_types_and_bounds_are_said_in_words():
    assert types_in_words(Config()) == {
        "layers": "integer >= 1",
        "width": "integer >= 2, a multiple of 2",
        "share": "number > 0 and < 1",
        "rows": "integer >= 3",
        "kind": "a, b or c",
        "only": "x",
        "name": "text",
        "is_open": "true or false",
        "maybe": "integer, or not given",
    }  # what cannot be told in words is printed as it was written


def test_a_type_that_exists_for_checkers_alone_is_left_as_it_was_written():
    @dataclass
    class Own:
        layers: "Missing" = 1  # noqa: F821  # pyright: ignore[reportUndefinedVariable]

    assert types_in_words(Own()) == {}


def test_every_option_of_the_shipped_models_can_be_told():
    for name in names("models"):
        config = load_model(name).config
        assert types_in_words(config).keys() == vars(config).keys()
