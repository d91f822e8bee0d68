"""The model in `docs/own-model.md` is whole, short, and does what the page says."""

import re
from pathlib import Path

import numpy as np
import pytest

import ampsim
import ampsim.nodes
from ampsim.data import ArrayDataset, pump_arrays
from ampsim.errors import OptionError
from ampsim.ir import Node

PAGE = Path(__file__).resolve().parents[2] / "docs" / "own-model.md"
TWO = ampsim.load_cluster("tflops-1", workers=2)


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    text, _loop = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    path = tmp_path_factory.mktemp("own") / "spirals.py"
    path.write_text(text, encoding="utf-8")
    return path


def test_it_has_forty_lines_of_code(file):
    lines = [line for line in file.read_text(encoding="utf-8").splitlines() if line.strip()]
    assert len(lines) <= 40


def test_it_is_a_model_that_learns(file):
    model = ampsim.load_model(file, hidden=32)
    assert ampsim.try_out(model).items == 20
    cluster = ampsim.load_cluster("tflops-1", workers=2)
    result = ampsim.simulate(model, cluster, ampsim.Amp(4), epochs=2, instances=1000)
    assert result.epochs["accuracy"].iloc[-1] > 0.55
    assert result.epochs["instances"].tolist() == [1000, 1000]


@pytest.fixture(scope="module")
def loop(tmp_path_factory):
    _first, text = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    path = tmp_path_factory.mktemp("own") / "loop.py"
    path.write_text(text, encoding="utf-8")
    return path


def test_the_branch_and_the_loop_have_twenty_five_lines(loop):
    text = loop.read_text(encoding="utf-8")
    part = text[text.index("def moved") : text.index("def build")]
    assert len([line for line in part.splitlines() if line.strip()]) <= 25


def test_a_batch_passes_the_layer_as_often_as_its_state_says(loop):
    model = ampsim.load_model(loop)
    cluster = ampsim.load_cluster("tflops-1", workers=2)
    spans = ampsim.simulate(model, cluster, ampsim.Amp(2), instances=120).spans
    forward = spans[(spans["node"] == "layer") & (spans["direction"] == "forward")]
    assert forward.groupby("instance").size().head(6).tolist() == [1, 2, 3, 1, 2, 3]


def test_it_learns_through_the_loop(loop):
    cluster = ampsim.load_cluster("tflops-1", workers=2)
    epochs = ampsim.simulate(ampsim.load_model(loop), cluster, ampsim.Amp(2), epochs=12).epochs
    assert epochs["accuracy"].iloc[-1] > 0.8


def test_the_page_has_every_node_that_is_shipped():
    lines = [line for line in PAGE.read_text(encoding="utf-8").splitlines() if line[:2] == "| "]
    told = set(re.findall(r"`(\w+)`", " ".join(line.split("|")[1] for line in lines)))
    shipped = {
        name for name in ampsim.nodes.__all__ if isinstance(getattr(ampsim.nodes, name), type)
    }
    assert told == {name for name in shipped if issubclass(getattr(ampsim.nodes, name), Node)}


def points(rows, width=2):
    return np.arange(rows * width, dtype=np.float64).reshape(rows, width)


MASKED = np.ma.masked_array(points(2), [[True, False], [False, False]])


@pytest.mark.parametrize("count", [None, 7])
def test_every_item_comes_once_and_validation_keeps_its_order(count):
    labels = np.arange(10)
    data = ArrayDataset((points(10), labels), (points(4), labels[:4]), batch=4).for_run(0, count)
    rows = count or 10
    for epoch in range(2):
        batches = list(data.batches("train", epoch=epoch, seed=3))
        assert [batch.rows for batch in batches] == [4, 4, 2] if count is None else [4, 3]
        assert sorted(np.concatenate([one.arrays[1] for one in batches])) == list(range(rows))
        assert all((one.arrays[0] == points(10)[one.arrays[1]]).all() for one in batches)
    (valid,) = data.batches("valid", epoch=0, seed=3)
    assert valid.arrays[1].tolist() == [0, 1, 2, 3]
    assert valid.arrays[0].dtype == np.float32
    assert (data.count("valid"), data.batch_count("train")) == (4, -(-rows // 4))


def test_batches_are_pumped_one_array_a_port():
    data = ArrayDataset([points(3)], [points(3)])
    (batch,) = data.batches("valid", epoch=0, seed=0)
    ((port, state, payload),) = pump_arrays(5, batch)
    assert (port, state.instance) == (0, 5)
    assert payload is batch.arrays[0]


@pytest.mark.parametrize(
    ("train", "valid", "options", "told"),
    [
        (points(3), (points(3),), {}, "train must be a tuple of arrays such as"),
        ((), (points(3),), {}, "train must be a tuple of arrays such as"),
        (None, (points(3),), {}, "got NoneType"),
        ((points(3), points(4)), (points(3),), {}, "arrays of train must have equally many rows"),
        ((points(3),), (points(3, 5),), {}, "train and valid must be alike but for their rows"),
        ((points(3),), (points(3).astype(int),), {}, "train and valid must be alike"),
        ((["a"],), (["a"],), {}, "train must hold arrays of numbers with a row for each item"),
        ((3.0,), (3.0,), {}, "train must hold arrays of numbers with a row for each item"),
        (([[1], [1, 2]],), ([1],), {}, "train must hold arrays of numbers"),
        ((points(2),), (MASKED,), {}, "an array of valid must have a number at every place, got a"),
        (([*MASKED],), (points(2),), {}, "an array of train must have a number at every place"),
        ((points(3),), (points(3),), {"batch": 0}, "batch must be a whole number >= 1"),
        ((points(3),), (points(3),), {"dtype": "int8"}, "dtype must be float32 or float64"),
    ],
)
def test_arrays_that_do_not_fit_are_refused(train, valid, options, told):
    with pytest.raises(OptionError, match=re.escape(told)) as caught:
        ArrayDataset(train, valid, **options)
    assert "\n" not in str(caught.value)


def test_an_array_with_a_mask_that_masks_nothing_is_taken():
    given = np.ma.masked_array(points(3), False)
    assert type(ArrayDataset((given,), (given,)).train[0]) is np.ndarray


def test_more_items_than_there_are_are_refused():
    data = ArrayDataset((points(3),), (points(3),))
    with pytest.raises(OptionError, match=r"^instances must be at most 3, all that there are"):
        data.for_run(0, 4)


@pytest.mark.parametrize(
    "asked",
    [
        lambda one: ampsim.simulate(one, "tflops-1", "amp", instances=4001),
        lambda one: ampsim.forecast(one, "tflops-1", "amp", instances=4001, max_epochs=1),
        lambda one: ampsim.explore(
            one, TWO, "amp,gpipe", over={"latency_s": [0, 1e-6]}, instances=4001, max_epochs=1
        ),
    ],
    ids=["simulate", "forecast", "explore"],
)
def test_more_instances_than_there_are_are_refused_by_the_name_that_they_were_asked_by(file, asked):
    with pytest.raises(OptionError, match=r"^instances must be at most 4000, all that there are"):
        asked(file)
