"""The shapes and types that records of data are annotated with are those that they have."""

from __future__ import annotations

import ast
import importlib
import re
from collections.abc import Iterator
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from typing import Any

import jaxtyping
import numpy as np
import pytest
from jaxtyping import jaxtyped

import ampsim
from ampsim.data import (
    ListReduction,
    Mnist,
    Qm9Dipoles,
    SentimentTrees,
    Vocabulary,
    WikiNer,
)
from ampsim.data.qm9_dipoles import draw_molecules
from ampsim.data.vocabulary import read_vectors

DEPTH_MAX = 4
SHAPED = re.compile(r"[A-Z]\w*\[np\.ndarray, '")  # one of jaxtyping's, as `ast` writes it


def shaped_records() -> dict[type, dict[str, str]]:
    """For each class of the package, the annotations of its fields that give a shape."""
    found: dict[type, dict[str, str]] = {}
    root = Path(ampsim.__file__).parent
    for path in sorted(root.rglob("*.py")):
        text = path.read_text("utf-8")
        for node in ast.parse(text).body if "np.ndarray" in text else ():
            if not isinstance(node, ast.ClassDef):
                continue
            own = [part for part in node.body if isinstance(part, ast.AnnAssign)]
            texts = {ast.unparse(part.target): ast.unparse(part.annotation) for part in own}
            shapes = {name: text for name, text in texts.items() if SHAPED.match(text)}
            if shapes:
                module = ".".join(path.relative_to(root.parent).with_suffix("").parts)
                found[getattr(importlib.import_module(module), node.name)] = shapes
    return found


RECORDS = shaped_records()


def parts(thing: Any, depth: int = 0) -> Iterator[Any]:
    """The object and all that it holds."""
    yield thing
    if depth == DEPTH_MAX or isinstance(thing, np.ndarray | str):
        return
    inner: list[Any] = list(vars(thing).values()) if hasattr(thing, "__dict__") else []
    if isinstance(thing, tuple | list):
        inner += thing[:20]
    elif isinstance(thing, dict):
        inner += thing.values()
    elif is_dataclass(thing):
        inner += [getattr(thing, field.name) for field in fields(thing)]
    for one in inner:
        yield from parts(one, depth + 1)


def faults(record: Any) -> list[str]:
    """Fields that are not what they are annotated as; a name has one value in all of them."""
    known, found = {**vars(jaxtyping), "np": np}, []
    plain_first = sorted(RECORDS[type(record)].items(), key=lambda item: "+" in item[1])
    with jaxtyped("context"):
        for name, text in plain_first:
            value = getattr(record, name)
            if not isinstance(value, eval(text, known)):
                found.append(f"{name}: {text}, got {value.dtype} {value.shape}")
    return found


def recast(record: Any, types: dict[str, Any]) -> Any:
    return replace(record, **{name: getattr(record, name).astype(types[name]) for name in types})


@pytest.fixture(scope="module")
def records(tmp_path_factory: pytest.TempPathFactory) -> dict[type, list[Any]]:
    """Some records of each annotated class, from the synthetic data sets and small files."""
    counts: dict[str, Any] = {"train_count": 40, "valid_count": 10}
    vectors = tmp_path_factory.mktemp("glove") / "vectors.txt"
    vectors.write_text("a 1 2 3\nb 4 5 6\n", "utf-8")
    sets: list[Any] = [kind.synthetic(0, **counts) for kind in (Mnist, Qm9Dipoles)]
    sets += [kind.synthetic(0, **counts) for kind in (SentimentTrees, WikiNer)]
    sets.append(ListReduction.generate(0, 40, 10, batch=8))
    things = [*sets, draw_molecules(0, "train", 7)]
    unsigned: dict[str, Any] = {"z": np.uint8, "bonds": np.uint8}  # as in the published file
    things += [recast(draw_molecules(0, "train", 7), unsigned)]
    things.append(read_vectors(vectors, Vocabulary.of(["a", "a", "c"]), 3))
    things += [batch for one in sets for batch in one.batches("train", epoch=0, seed=0)]
    found: dict[type, list[Any]] = {kind: [] for kind in RECORDS}
    for part in (part for thing in things for part in parts(thing)):
        if type(part) in found:
            found[type(part)].append(part)
    return found


@pytest.mark.parametrize("kind", RECORDS, ids=lambda kind: kind.__name__)
def test_fields_have_the_shapes_that_they_are_annotated_with(records, kind):
    assert records[kind], "no data set of this test has one"
    assert [fault for record in records[kind] for fault in faults(record)] == []


def test_a_wrong_shape_and_a_wrong_type_are_found(records):
    batch = next(one for kind in RECORDS for one in records[kind] if kind.__name__ == "ImageBatch")
    assert faults(batch._replace(labels=batch.labels[1:])) != []
    assert faults(batch._replace(images=batch.images[:, 1:])) != []
    assert faults(batch._replace(labels=batch.labels.astype(float))) != []
