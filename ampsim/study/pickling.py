"""How a model is pickled: with the source of its file, so that it is whole wherever it is read.

Functions of a model's file are found by name in that source, which is executed again; what has no
name, such as lambdas and what was defined in a notebook, is carried by cloudpickle. Everything that
holds a model, such as a result or a forecast, is then pickled like anything else. As with any
pickle, reading one runs what is in it: read only those that you would run.
"""

from __future__ import annotations

import copyreg
import pickle
from dataclasses import fields
from typing import Any

from ampsim.study.loading import Source, loaded_sources, restore
from ampsim.study.model import Model
from ampsim.study.packed_tasks import bytes_of


def _reduce(model: Model) -> tuple[Any, ...]:
    values = {field.name: getattr(model, field.name) for field in fields(model)}
    return _made, (loaded_sources(), bytes_of(values))


def _made(sources: dict[str, Source], content: bytes) -> Model:
    restore(sources)
    return Model(**pickle.loads(content))


copyreg.pickle(Model, _reduce)
