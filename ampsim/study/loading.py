"""Models loaded from files by path, the settings that users give them, and models as bytes.

A model is pickled with the source of its file, so that it is whole wherever it is read. Functions
of that file are found by name in the source, which is executed again; what has no
name, such as lambdas and what was defined in a notebook, is carried by cloudpickle. Everything that
holds a model, such as a result or a forecast, is then pickled like anything else. As with any
pickle, reading one runs what is in it: read only those that you would run.
"""

from __future__ import annotations

import copyreg
import dataclasses
import hashlib
import importlib.util
import inspect
import io
import os
import pickle
import sys
import threading
import traceback
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from numbers import Integral
from pathlib import Path
from types import ModuleType
from typing import Any, Final, NamedTuple, TypeVar, get_type_hints

import numpy as np
from pydantic import TypeAdapter, ValidationError
from pydantic.errors import PydanticUndefinedAnnotation, PydanticUserError
from pydantic.json_schema import GenerateJsonSchema

from ampsim.arguments import checked
from ampsim.assets import locate, shipped
from ampsim.data import MissingDataError
from ampsim.errors import AmpsimError, FileFormatError, OptionError, UnknownNameError, one_of
from ampsim.options import COUNT_MAX
from ampsim.study.model import Model, digest_of
from ampsim.study.process_settings import single_threaded
from ampsim.text import short
from ampsim.user_code import OURS_TO_PASS, digest_of_imports, text_of

T = TypeVar("T")


def settings_of(texts: Iterable[str]) -> dict[str, str]:
    """Split each KEY=VALUE at its first "="; `load_model` reads the values by type.

    Raises:
        OptionError: one has no "=" or no key, or two have the same key.

    >>> settings_of(["hidden=64", "dtype=float64"])
    {'hidden': '64', 'dtype': 'float64'}
    """
    settings: dict[str, str] = {}
    for text in texts:
        key, separator, value = (part.strip() for part in text.partition("="))
        if not separator or not key:
            raise OptionError(f"a setting must be KEY=VALUE, got {text!r}; for example hidden=64")
        if key in settings:
            raise OptionError(f"settings must differ, got {key} twice")
        settings[key] = value
    return settings


def with_data_folder(
    settings: Mapping[str, str], folder: str, model: str, options: Iterable[str]
) -> dict[str, str]:
    """Add the data folder, which is a model's option `folder`.

    Raises:
        OptionError: the model reads no data from files, or `settings` name the folder too.
    """
    if "folder" not in options:
        raise OptionError(
            f"--data does not concern {model}, which reads no data from files "
            "(it has no option 'folder'); leave it out"
        )
    if "folder" in settings:
        raise OptionError(
            f"--data {folder} and --set folder={settings['folder']} say the same thing; "
            "leave one of them out"
        )
    return {**settings, "folder": folder}


class ModelSource(NamedTuple):
    """A model file as it was when it was executed."""

    path: Path
    content: bytes


_SOURCES: Final[dict[str, ModelSource]] = {}
"""By the names of their modules; a process that starts with nothing executes them again."""


@checked
def load_model(name_or_path: str | os.PathLike[str], /, **overrides: Any) -> Model:
    """Build the model of a file.

    Args:
        name_or_path: a shipped model's name, or the path of a ``.py`` file. The file is executed:
            load only files that you would run.
        overrides: fields of the file's `Config`; strings are read as the field's type.

    Returns:
        The model, with its parameters as a run with seed 0 draws them.

    Raises:
        UnknownNameError: no such model, file or field.
        OptionError: a field's value does not fit.
        FileFormatError: the file cannot be executed, or lacks `Config` or `build`.
        GraphError: the graph breaks a rule of the representation.

    Example:
        >>> import ampsim
        >>> model = ampsim.load_model("rnn", hidden=32, replicas=2)
        >>> model.parameters()["linear-1.0.weight"].shape
        (64, 32)
    """
    with single_threaded():
        return _load(locate("models", name_or_path), str(name_or_path), overrides)


def _load(path: Path, shown: str, overrides: dict[str, Any]) -> Model:
    module = _execute(path, shown)
    config = _configure(module, path, overrides)
    try:
        model = module.build(config)
        if isinstance(model, Model):
            model.graph()
    except OURS_TO_PASS:
        raise
    except BaseException as error:
        raise FileFormatError(f"{path}: build(config) failed{where(error, path)}") from error
    if not isinstance(model, Model):
        if inspect.iscoroutine(model):
            model.close()  # or Python complains, later and elsewhere, that nobody awaited it
        raise FileFormatError(
            f"{path}: build(config) must return an ampsim.Model, got {type(model).__name__}"
        )
    content = _SOURCES[module.__name__].content
    origin = {"file": path.name, "sha256": hashlib.sha256(content).hexdigest()}
    is_shipped = path.parent == shipped("models")  # and imports ampsim and libraries alone
    if not is_shipped and (modules := digest_of_imports(content)):
        origin["modules"] = modules
    if model.given:
        origin["parameters"] = digest_of(model.given)
    object.__setattr__(model, "is_as_loaded", True)
    return model.told_by_config(origin=origin)


def with_options(model: Model, options: Mapping[str, Any]) -> Model:
    """A model built again by its file with other options, those that it has else.

    Args:
        model: from `load_model`.
        options: as the overrides of `load_model`.

    Raises:
        OptionError: no file built the model, it was changed since, or a value does not fit.
        FileFormatError: the file has changed since.
        UnknownNameError: no such option.
    """
    source = _SOURCES.get(type(model.config).__module__)
    is_own = source is not None and _has_built(source, model)
    if source is None or not is_own or model.given or not model.is_as_loaded:
        raise OptionError(
            f"options of a model can vary where load_model gave it, not those of {model.name}, "
            "which was made or changed in Python, or has another file's config; load it from a "
            "file that gives it its own"
        )
    kept = {one.name: getattr(model.config, one.name) for one in dataclasses.fields(model.config)}
    if not os.path.isfile(source.path) or source.path.read_bytes() != source.content:
        raise FileFormatError(f"{source.path} has changed since {model.name} was read; begin again")
    return load_model(source.path, **{**kept, **options})


def modules_here(model: Model) -> str:
    """The digest of what a model's file imports, in this process; as `origin` has it elsewhere."""
    built = [one.content for one in _SOURCES.values() if _has_built(one, model)]
    return digest_of_imports(built[0]) if built else ""


def _has_built(source: ModelSource, model: Model) -> bool:
    return hashlib.sha256(source.content).hexdigest() == model.origin.get("sha256")


def option_names(name_or_path: str | os.PathLike[str]) -> list[str]:
    """Return the names of a model's options, before it is built.

    Raises:
        UnknownNameError: no such model or file.
        FileFormatError: the file cannot be executed, or lacks `Config` or `build`.
    """
    module = _execute(locate("models", name_or_path), str(name_or_path))
    return [field.name for field in dataclasses.fields(module.Config)]


WORDS: Final = {
    "integer": "integer",
    "number": "number",
    "string": "text",
    "boolean": "true or false",
}

BOUNDS: Final = {"exclusiveMinimum": ">", "minimum": ">=", "exclusiveMaximum": "<", "maximum": "<="}


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


def execute(path: Path, shown: str, expected: str) -> ModuleType:
    """Run a user's file as a module of its own, under a name that no other file has.

    Args:
        path: of the file.
        shown: as the user named it.
        expected: what it is to hold, in words.

    Raises:
        FileFormatError: it is no Python file, or cannot be executed.
    """
    name = f"ampsim_model_{hashlib.sha256(os.fsencode(path.resolve())).hexdigest()[:16]}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None or not os.path.isfile(path):
        raise FileFormatError(f"{shown}: expected a Python file (.py) with {expected}")
    there = Path(os.path.abspath(path))  # for the file may change the folder
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses look their module up
    try:
        content = there.read_bytes()  # bytecode that Python keeps may be of a second's other file
        exec(compile(content, there, "exec", dont_inherit=True), module.__dict__)
    except OURS_TO_PASS:
        raise
    except BaseException as error:
        raise FileFormatError(f"{path}: cannot be executed{where(error, path)}") from error
    _SOURCES[name] = ModelSource(there, content)
    return module


def _execute(path: Path, shown: str) -> ModuleType:
    """Run a model file."""
    module = execute(path, shown, "Config and build(config)")
    for needed in ("Config", "build"):
        if not callable(getattr(module, needed, None)):
            raise FileFormatError(
                f"{path}: expected Config and build(config), got no {needed}; "
                f"a file that works: {shipped('models') / 'rnn.py'}"
            )
    if not dataclasses.is_dataclass(module.Config):
        got = type(module.Config).__name__
        raise FileFormatError(
            f"{path}: Config must be a dataclass, got a {got}; put @dataclass(frozen=True) on it"
        )
    return module


def where(error: BaseException, path: Path) -> str:
    """Name the last line of the user's own file on the way to the error, and the error."""
    own = os.path.abspath(path)  # as Python's import names it, whatever the user's path is
    if isinstance(error, SyntaxError) and os.path.abspath(error.filename or "") == own:
        return f": line {error.lineno}: {error.msg}"
    frames = traceback.extract_tb(error.__traceback__)
    lines = [frame.lineno for frame in frames if os.path.abspath(frame.filename) == own]
    line = f": line {lines[-1]}" if lines else ""
    is_missing = isinstance(error, ModuleNotFoundError)
    remedy = "; name its folder in PYTHONPATH, or install it" if is_missing else ""
    return f"{line}: {type(error).__name__}: {text_of(error)}{remedy}"


def _require_no_slip(path: Path, name: str, value: Any) -> None:
    """Refuse a number so large that building the model would never end."""
    is_count = isinstance(value, Integral) or (isinstance(value, str) and value.strip().isdecimal())
    if is_count and int(value) > COUNT_MAX:
        raise OptionError(
            f"{path.stem}: field {name!r}: must be at most {COUNT_MAX:,}, got {short(value)}"
        )


def _configure(module: ModuleType, path: Path, overrides: dict[str, Any]) -> Any:
    """Make the file's `Config` with `overrides`, checked against the fields' types."""
    fields = [field.name for field in dataclasses.fields(module.Config)]
    for name in overrides:
        if name not in fields:
            raise UnknownNameError(f"{path.stem}: {one_of('field', name, fields)}")
    try:
        hints = get_type_hints(module.Config, include_extras=True)  # names a type that is nowhere
        for name, value in overrides.items():
            _require_no_slip(path, name, value)
            if isinstance(value, bool | np.bool_):
                _require_flag(path, name, value, hints[name])
        return TypeAdapter(module.Config).validate_python(overrides)
    except OURS_TO_PASS:
        raise
    except (PydanticUserError, NameError) as error:
        raise FileFormatError(
            f"{path}: Config must have fields of plain types such as int, float, bool or str: "
            f"{str(error).splitlines()[0]}"
        ) from error
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(str(part) for part in first["loc"]) or "Config"
        said, got = (" ".join(one.split()) for one in (first["msg"], repr(first["input"])))
        raise OptionError(
            f"{path.stem}: field {field!r}: {said[:1].lower()}{said[1:]}, got {got}"
        ) from None
    except BaseException as error:
        raise FileFormatError(f"{path}: Config cannot be made{where(error, path)}") from error


def _require_flag(path: Path, name: str, value: Any, hint: Any) -> None:
    """Refuse a truth value where the option is a number: Python takes True for 1, a reader not."""
    try:
        TypeAdapter(hint).validate_python(bool(value), strict=True)
    except ValidationError:
        raise OptionError(
            f"{path.stem}: field {name!r}: input should not be true or false, got {value!r}"
        ) from None


def located(where: str, make: Callable[[], T]) -> T:
    """Call `make`; a mistake in it names its file and place. That data are absent is none.

    Raises:
        FileFormatError: something does not fit.
    """
    try:
        return make()
    except MissingDataError:
        raise
    except AmpsimError as error:
        raise FileFormatError(f"{where}: {error}") from error


_CACHED: Final[Any] = type(lru_cache(None)(len))


def bytes_of(value: object) -> bytes:
    """Pickle a value, functions without a name among its parts."""
    import cloudpickle  # pyright: ignore[reportMissingTypeStubs]  # has none

    pickler: Any = cloudpickle.Pickler

    class Pickler(pickler):
        """Cloudpickle's, which also takes functions with `functools.cache` that have no name."""

        def reducer_override(self, one: Any) -> Any:
            if type(one) is _CACHED:
                where = sys.modules.get(one.__module__)
                if getattr(where, one.__qualname__, None) is not one:  # not found by its name
                    return _cached, (one.__wrapped__, one.cache_parameters()["maxsize"])
            above: Any = super()
            return above.reducer_override(one)

    buffer = io.BytesIO()
    Pickler(buffer).dump(value)
    return buffer.getvalue()


def _cached(function: Callable[..., Any], size: int | None) -> Callable[..., Any]:
    return lru_cache(size)(function)


_MAKING: Final = threading.RLock()


def _reduce(model: Model) -> tuple[Any, ...]:
    content = bytes_of(vars(model))
    needed = {
        name: source
        for name, source in _SOURCES.items()
        if name.encode() in content or _has_built(source, model)
    }
    return _made, (needed, content)


def _made(sources: dict[str, ModelSource], content: bytes) -> Model:
    """Make the model of another process, whose files are executed as they were there.

    What was executed here as it is there stays: others may be at it in another thread.
    """
    with _MAKING:  # of two threads, neither finds the other's file half executed, or another's
        for name, source in sources.items():
            if name in sys.modules and _SOURCES.get(name) == source:
                continue
            spec = importlib.util.spec_from_file_location(name, source.path)
            assert spec is not None, f"{source.path} was a Python file elsewhere"
            module = importlib.util.module_from_spec(spec)
            sys.modules[name] = module
            with single_threaded():
                code = compile(source.content, source.path, "exec", dont_inherit=True)
                exec(code, module.__dict__)
            _SOURCES[name] = source
        model = object.__new__(Model)
        vars(model).update(pickle.loads(content))
        return model


copyreg.pickle(Model, _reduce)
