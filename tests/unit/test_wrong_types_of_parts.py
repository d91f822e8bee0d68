"""Every node, optimizer and reader of data x argument x wrong value: one line, or it works."""

import importlib
import inspect

import numpy as np
import pandas as pd
import pytest

import ampsim
from ampsim.data import Vocabulary
from ampsim.errors import AmpsimError

WRONG = [
    None, True, -1, 0, 2**63, 10**30, 1.5, float("nan"), 1j, "", "x", "\x00", b"x", [], [1], (),
    (1, 2), {}, {"a": 1}, set(), object(), object, int, len, ..., np.int64(-3), np.bool_(True),
    np.array([]), np.array([1.0, 2.0]), np.array("x"), pd.DataFrame(), range(3), slice(1),
    [[]], np.array([None]), iter([1]), lambda *a, **k: None,
]  # fmt: skip

RIGHT = {
    "name": "node", "d_in": 2, "d_out": 3, "hidden": 3, "width": 2, "widths": (2, 2), "parts": 2,
    "count": 2, "counter": len, "place": len, "rate": 0.5, "seed": 0, "start": 0, "stop": 1,
    "inputs": ("a", "b"), "outputs": ("a", "b"), "query": len, "update": len, "inverse": len,
    "vocabulary": 3, "initial": 0.1, "learning_rate": 0.1, "decay": 0.9, "momentum": 0.9,
    "dataset": "mnist", "part": "train-images", "form": "fused", "graph": None, "cell": None,
    "path": "nowhere",
}  # fmt: skip
READERS = ("find_file", "data_folder", "survey", "read_vectors")
SETS = ("ListReduction", "Mnist", "Qm9Dipoles", "SentimentTrees", "WikiNer")


class Rude:
    """Nothing can be done with it, not even look at it."""

    def __repr__(self):
        raise RuntimeError

    __str__ = __len__ = __iter__ = __bool__ = __float__ = __index__ = __repr__
    __hash__ = None  # pyright: ignore[reportAssignmentType]  # that is the point


def parts():
    """Everything that a model is made of, by its public name."""
    for module in ("ampsim.nodes", "ampsim.optim"):
        home = importlib.import_module(module)
        for name in home.__all__:
            part = getattr(home, name)
            if inspect.isroutine(part) or (inspect.isclass(part) and module == "ampsim.nodes"):
                yield pytest.param(part, id=name)
    data = importlib.import_module("ampsim.data")
    yield from (pytest.param(getattr(data, name), id=name) for name in READERS)
    for name in SETS:
        for way in ("load", "synthetic", "generate"):
            if hasattr(getattr(data, name), way):
                yield pytest.param(getattr(getattr(data, name), way), id=f"{name}.{way}")


def line_of(part, arguments):
    """What a call is refused with; nothing where it is not."""
    try:
        part(**arguments)
    except AmpsimError as error:
        return str(error)
    return ""


@pytest.mark.parametrize("part", list(parts()))
def test_every_part_says_in_one_line_what_it_was_given(part, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("AMPSIM_DATA", str(tmp_path))
    needed = inspect.signature(part).parameters
    words = Vocabulary.of(["a"])
    right = RIGHT | ({"vocabulary": words} if part.__name__ == "read_vectors" else {})
    given = {name: right.get(name) for name, one in needed.items() if one.default is one.empty}
    given |= {name: 2 for name in ("train_count", "valid_count") if name in needed}
    for argument in needed:
        lines = [line_of(part, {**given, argument: value}) for value in [*WRONG, Rude()]]
        assert not any("\n" in line for line in lines)


@pytest.mark.parametrize("name", ["graph", "set_parameters", "update_interval", "error_scale_of"])
def test_methods_of_a_model_say_the_same(name):
    model = ampsim.load_model("mlp", data="synthetic", hidden=2, layers=1)
    (argument,) = inspect.signature(getattr(model, name)).parameters
    lines = [line_of(getattr(model, name), {argument: value}) for value in [*WRONG, Rude()]]
    assert not any("\n" in line for line in lines)


@pytest.mark.parametrize("argument", ["source", "target"])
def test_a_cluster_s_links_are_asked_for_by_whole_numbers(argument):
    cluster = ampsim.load_cluster("tflops-1", workers=2)
    for value in [*WRONG, Rude()]:
        assert "\n" not in line_of(
            cluster.link_between, {"source": 0, "target": 1, argument: value}
        )


def test_lists_of_widths_and_names_will_do_as_well_as_tuples():
    nodes = importlib.import_module("ampsim.nodes")
    assert nodes.Concat("c", [2, np.int8(3)]).widths == nodes.Split("s", [2, 3]).widths == (2, 3)
    assert nodes.Phi("p", ["a", "b"]).inputs == nodes.Cond("c", len, ["a", "b"]).outputs
