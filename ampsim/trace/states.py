"""Codes of the states of messages, without their instance; a column can hold them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from operator import itemgetter
from typing import Any, Final, TypeAlias, cast

STATES_MAX: Final = 1 << 16
"""Different states that are told apart (chosen: 10 MB of texts); the rest is called "..."."""

_Kind: TypeAlias = tuple[Callable[[Any], Any], dict[Any, int], str]
"""Of the states of one type: what takes their fields, the codes of these, and them in words."""

_PLAIN: Final = (int, float, str)


class States:
    """Numbers states, without their instance, in the order of their coming.

    Counters and names count, such as the step of a loop. Tuples do not: they describe an instance,
    and there may be as many of them as instances.

    Attributes:
        texts: for each code, the fields by name, such as "step 3, length 7"; the first is empty,
            for states of nothing but an instance.
    """

    def __init__(self) -> None:
        self.texts: list[str] = [""]
        self._codes: dict[str, int] = {"": 0}
        self._kinds: dict[type, _Kind] = {}

    def __getstate__(self) -> dict[str, Any]:
        """Pickle all but the types, which a user's file may define."""
        return {"texts": self.texts, "_codes": self._codes, "_kinds": {}}

    def codes(self, states: Iterable[tuple[Any, ...]]) -> Iterator[int]:
        """Return the code of each state, a named tuple whose first field is its instance."""
        kinds = self._kinds
        for state in states:  # a loop, for a call for each state takes longer than what it does
            kind = kinds.get(type(state)) or self._kind_of(state)
            values = kind[0](state)
            code = kind[1].get(values)
            yield self._add(kind, values) if code is None else code

    def _kind_of(self, state: tuple[Any, ...]) -> _Kind:
        kind = self._kinds[type(state)] = _kind(state)
        return kind

    def _add(self, kind: _Kind, values: Any) -> int:
        _get, codes, form = kind
        words = cast("tuple[Any, ...]", values) if isinstance(values, tuple) else (values,)
        code = self._code_of(form.format(*words))
        if len(codes) < STATES_MAX:
            codes[values] = code
        return code

    def _code_of(self, text: str) -> int:
        if text not in self._codes:
            text = text if len(self.texts) < STATES_MAX else "..."
            self._codes.setdefault(text, len(self.texts))
        if self._codes[text] == len(self.texts):
            self.texts.append(text)
        return self._codes[text]


def _kind(state: tuple[Any, ...]) -> _Kind:
    """Find the plain fields of states of one type, and the words for them."""
    names: tuple[str, ...] = getattr(state, "_fields", ())
    places = [place for place in range(1, len(names)) if isinstance(state[place], _PLAIN)]
    if not places:
        return _nothing, {}, ""
    return itemgetter(*places), {}, ", ".join(f"{names[place]} {{}}" for place in places)


def _nothing(state: tuple[Any, ...]) -> tuple[Any, ...]:
    return ()
