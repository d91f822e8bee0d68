"""What a model's option may be, in words: the type and bounds that its field is declared with."""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal, get_args, get_origin, get_type_hints

WORDS: Final = {int: "integer", float: "number", str: "text", bool: "true or false"}

BOUNDS: Final = (("gt", ">"), ("ge", ">="), ("lt", "<"), ("le", "<="))


def types_in_words(config: Any) -> dict[str, str]:
    """Say for each field of a model's `Config` what it may be; fields that cannot be told lack."""
    kind: Any = config.__class__
    try:
        hints = get_type_hints(kind, include_extras=True)
    except (AttributeError, NameError, TypeError):  # an annotation that is none when it is run
        return {}
    told = {name: _words(hint) for name, hint in hints.items()}
    return {name: words for name, words in told.items() if words}


def _words(hint: Any) -> str:
    if get_origin(hint) is Literal:
        *others, last = map(str, get_args(hint))
        return f"{', '.join(others)} or {last}" if others else last
    if get_origin(hint) is not Annotated:
        return WORDS.get(hint, "")
    base, *fields = get_args(hint)
    rules = [rule for field in fields for rule in (field, *getattr(field, "metadata", ()))]
    bounds = [
        f"{sign} {getattr(rule, name)}"
        for name, sign in BOUNDS
        for rule in rules
        if getattr(rule, name, None) is not None
    ]
    known = _words(base)
    words = f"{known} {' and '.join(bounds)}" if known and bounds else known
    multiples = [rule.multiple_of for rule in rules if getattr(rule, "multiple_of", None)]
    return ", ".join([words, *(f"a multiple of {of}" for of in multiples)]) if words else ""
