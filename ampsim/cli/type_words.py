"""What a model's option may be, in words: the type and bounds that its values are checked by."""

from __future__ import annotations

from typing import Any, Final

from pydantic import TypeAdapter
from pydantic.errors import PydanticUndefinedAnnotation, PydanticUserError
from pydantic.json_schema import GenerateJsonSchema

WORDS: Final = {
    "integer": "integer",
    "number": "number",
    "string": "text",
    "boolean": "true or false",
}

BOUNDS: Final = {
    "exclusiveMinimum": ">",
    "minimum": ">=",
    "exclusiveMaximum": "<",
    "maximum": "<=",
}


def types_in_words(config: Any) -> dict[str, str]:
    """Say for each field of a model's `Config` what it may be; fields that cannot be told lack.

    Source: the JSON Schema of pydantic, which checks the values.
    """
    try:
        schema = TypeAdapter(config.__class__).json_schema(schema_generator=_Lenient)
    except (PydanticUndefinedAnnotation, PydanticUserError):
        return {}  # a type exists for checkers alone
    told = {name: _words(of_field) for name, of_field in schema.get("properties", {}).items()}
    return {name: words for name, words in told.items() if words}


class _Lenient(GenerateJsonSchema):
    """Says nothing of a type that JSON does not know, such as a function."""

    def handle_invalid_for_json_schema(self, schema: Any, error_info: str) -> dict[str, Any]:
        """Leave that field untold, not all of them."""
        return {}

    def emit_warning(self, kind: Any, detail: str) -> None:
        """Keep quiet of its default value."""


def _words(schema: dict[str, Any]) -> str:
    if "anyOf" in schema:
        parts = [_words(one) for one in schema["anyOf"] if one.get("type") != "null"]
        return f"{parts[0]}, or not given" if len(parts) == 1 and parts[0] else ""
    choices = schema.get("enum", [schema["const"]] if "const" in schema else [])
    if choices:
        *others, last = map(str, choices)
        return f"{', '.join(others)} or {last}" if others else last
    kind = WORDS.get(schema.get("type", ""), "")
    bounds = " and ".join(f"{sign} {schema[key]}" for key, sign in BOUNDS.items() if key in schema)
    multiple = f", a multiple of {schema['multipleOf']}" if "multipleOf" in schema else ""
    return f"{kind} {bounds}".rstrip() + multiple if kind else ""
