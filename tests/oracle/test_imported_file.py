"""`ampsim import` writes a model file that computes and learns as the model that it came from."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from torch_oracle import torch
from torch_zoo import case
from typer.testing import CliRunner

import ampsim
from ampsim.cli.entry import app
from ampsim.errors import AmpsimError, OptionError
from ampsim.files import sha256_of
from ampsim.interop import held_arrays, split_of, write_model_file
from ampsim.interop.imported_model import OPTIONS as IMPORTED

LINES_MAX = 110  # of characters; a node with all its options is a word of a call
OF_AN_MLP = 62  # with its docstring, imports, pump and build


def imported(name: str) -> Any:
    given = case(name)
    example = tuple(one[:6] for one in given.data[0])
    return ampsim.from_torch(
        given.module,
        example,
        loss=given.loss,
        data=given.data,
        optimizer=given.optimizer,
        target=0.5,
    )


NAMES = ("Graph", "graph", "interop", "nodes", "ampsim", "str")


def namesakes() -> Any:
    """Layers that are called as what a model file imports, and as its variables are."""
    torch.manual_seed(0)
    module, widths = torch.nn.Sequential(), itertools.pairwise((16, 8, 7, 6, 5, 4, 5))
    for name, (width, after) in zip(NAMES, widths, strict=True):
        module.add_module(name, torch.nn.Linear(width, after))
    given = case("mlp")
    return ampsim.from_torch(
        module.double(), given.data[0][0][:6], loss=given.loss, data=given.data,
        optimizer=torch.optim.SGD(module.parameters(), 0.1),
    )  # fmt: skip


def ragged() -> Any:
    """A GRU over batches of several lengths."""
    torch.manual_seed(0)

    class Reader(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.embedding = torch.nn.Embedding(9, 4)
            self.gru = torch.nn.GRU(4, 3, batch_first=True)
            self.fc = torch.nn.Linear(3, 2)

        def forward(self, x):
            return self.fc(self.gru(self.embedding(x))[1].squeeze(0))

    module = Reader()
    batches = [(torch.randint(0, 9, (4, steps)), torch.randint(0, 2, (4,))) for steps in (2, 5, 3)]
    return ampsim.from_torch(
        module,
        batches[0],
        loss=torch.nn.CrossEntropyLoss(),
        data=(batches, batches),
        optimizer=torch.optim.SGD(module.parameters(), 0.1),
    )


@pytest.mark.parametrize(
    "name",
    [
        "mlp",
        "regression",
        "lenet",
        "transformer encoder",
        "loop over cells",
        "gpt",
        "ragged",
        "namesakes",
    ],
)
def test_a_file_learns_as_the_model_that_it_is_of(name, tmp_path):
    make = {"ragged": ragged, "namesakes": namesakes}.get(name)
    model = make() if make else imported(name)
    path = tmp_path / "model.py"
    lines, arrays = write_model_file(model, path, "my_net.py:make")
    text = path.read_text()
    assert lines == len(text.splitlines())
    assert max(map(len, text.splitlines())) <= LINES_MAX
    assert "torch" not in text.replace("ampsim.interop", "")
    if name == "mlp":
        assert lines <= OF_AN_MLP
    with np.load(arrays, allow_pickle=False) as held:
        assert all(held[one].dtype.kind in "fib" for one in held.files)
    cluster, schedule = ampsim.load_cluster("tflops-1", workers=2), ampsim.Amp(2)
    runs = [
        ampsim.simulate(one, cluster, schedule, epochs=2)
        for one in (model, ampsim.load_model(path))
    ]
    assert runs[0].spans.equals(runs[1].spans)
    for name, values in runs[0].model.parameters().items():
        np.testing.assert_array_equal(runs[1].model.parameters()[name], values)


def test_a_batch_of_more_than_ten_arrays_has_them_in_their_order(tmp_path):
    """By name, the eleventh input came before the third, and the target among them."""
    written: dict[str, Any] = {f"train/000000/{place}": np.array(place) for place in range(12)}
    np.savez(tmp_path / "model.npz", **written)
    held = held_arrays(str(tmp_path / "model.py"), sha256_of(tmp_path / "model.npz"))
    assert [[int(one) for one in batch] for batch in split_of(held, "train")] == [[*range(12)]]


OPTIONS: dict[str, Any] = {
    "batch": 5,
    "error_scale": 27.2,
    "error_unit": "eV",
    "items": "molecules",
    "min_update_interval": 2,
    "node_update_intervals": {"2": 3},
    "target": 0.3,
}


def test_a_file_has_every_option_that_the_import_was_given(tmp_path):
    assert {*OPTIONS} == {*IMPORTED}
    given = case("regression")
    options = {**OPTIONS, "error_scale": lambda data: 27.2 * (data.train[1].ndim == 2)}
    model = ampsim.from_torch(
        given.module,
        given.data[0][0][:6],
        loss=given.loss,
        data=given.data,
        optimizer=given.optimizer,
        **options,
    )
    write_model_file(model, tmp_path / "model.py", "my_net.py:make")
    again = ampsim.load_model(tmp_path / "model.py")
    assert again.config.batch == model.config.batch == 5
    for name in {*OPTIONS} - {"batch"}:
        assert getattr(again, name) == OPTIONS[name], name
    runs = [ampsim.simulate(one, "tflops-1", "sequential") for one in (model, again)]
    assert runs[0].epochs["error"].equals(runs[1].epochs["error"])


SOURCE = """
import dataclasses
import torch
import ampsim

net = torch.nn.Linear(3, 2)
x, y = torch.randn(20, 3), torch.randint(0, 2, (20,))


def make():
    return ampsim.from_torch(
        net, x[:5], loss=torch.nn.CrossEntropyLoss(), data=((x, y), (x, y)),
        optimizer=torch.optim.SGD(net.parameters(), 0.1),
    )


def of_ours():
    return ampsim.from_torch(
        net, x[:5], loss=torch.nn.CrossEntropyLoss(), data=((x, y), (x, y)),
        optimizer=ampsim.optim.sgd(0.1),
    )


def replaced():
    return dataclasses.replace(make(), optimizer=ampsim.optim.sgd(0.2))


def of_other_data():
    return dataclasses.replace(make(), make_data=ampsim.load_model("mlp").make_data)


def shipped():
    return ampsim.load_model("mlp", data="synthetic")


def nothing():
    return net


def failing():
    raise ValueError("no such data")
"""


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    path = tmp_path_factory.mktemp("import") / "my_net.py"
    path.write_text(SOURCE)
    return path


def run(*words: object) -> Any:
    return CliRunner().invoke(app, [str(word) for word in words])


@pytest.mark.slow
def test_the_command_says_what_it_wrote_and_other_commands_take_it(source, tmp_path):
    out = tmp_path / "folder" / "model.py"
    done = run("import", f"{source}:make", "--out", out, "--json", "-")
    told = json.loads(done.output)
    assert (told["file"], told["model"], told["parameters"]) == (str(out), "Linear", 8)
    assert Path(told["arrays"]) == out.with_suffix(".npz")
    assert run("check", out).output.startswith(f"ok: {out}: model Linear, 3 nodes, 8 parameters")
    words = ["forecast", out, "--schedule", "amp", "--max-epochs", 1, "--target", 0.99, "--set"]
    assert "amp" in run(*words, "batch=10").output


WRONG = {
    "make": "what to import must be FILE.py:NAME, got",
    "{}:make ": "what to import must be FILE.py:NAME, got",
    "nowhere.py:make": "nowhere.py: no such file",
    "{}:mak": "no function named 'mak'; did you mean 'make'?",
    "{}:shipped": "must give what ampsim.from_torch(module, …) gives, got another model",
    "{}:nothing": "must be a function that returns ampsim.from_torch(module, …), got Linear",
    "{}:net": "must be a function that returns ampsim.from_torch(module, …), got Linear",
    "{}:failing": "failed: ValueError: no such data (",
    "{}:of_ours": "a file can be written of an optimizer of torch.optim alone",
    "{}:replaced": "that from_torch was given; give it those in place of a later change",
    "{}:of_other_data": "that from_torch was given; give it those in place of a later change",
}


@pytest.mark.parametrize("words", WRONG)
def test_a_mistake_is_told_in_a_line_and_leaves_no_file(words, source, tmp_path):
    done = run("import", words.format(source), "--out", tmp_path / "model.py")
    assert isinstance(done.exception, AmpsimError)
    assert WRONG[words] in str(done.exception)
    assert not list(tmp_path.iterdir())


def test_it_never_writes_over_what_it_reads(source):
    done = run("import", f"{source}:make", "--out", source)
    assert "is the file to import from; name another" in str(done.exception)
    assert source.read_text() == SOURCE


@pytest.mark.parametrize("is_archive", [False, True])
def test_it_never_writes_over_arrays_of_another(is_archive, source, tmp_path):
    arrays = tmp_path / "points.npz"
    if is_archive:
        held: dict[str, Any] = {"weight/1": np.ones(3), "x": np.ones(4)}
        np.savez(arrays, **held)
    else:
        arrays.write_text("mine")
    before = arrays.read_bytes()
    done = run("import", f"{source}:make", "--out", tmp_path / "points.py")
    assert isinstance(done.exception, OptionError)
    said = str(done.exception)
    assert said.startswith(
        f"{arrays}: is no file of an earlier import, and would be written over; "
    )
    assert list(tmp_path.iterdir()) == [arrays] and arrays.read_bytes() == before


def test_it_writes_over_what_it_wrote(source, tmp_path):
    out = tmp_path / "model.py"
    for _ in range(2):
        assert run("import", f"{source}:make", "--out", out).exit_code == 0
    assert ampsim.load_model(out).name == "Linear"


def test_the_file_to_write_is_python(source, tmp_path):
    done = run("import", f"{source}:make", "--out", tmp_path / "model.toml")
    assert "--out must be a Python file (.py), got" in str(done.exception)


def test_arrays_that_are_missing_or_others_are_told(source, tmp_path):
    out = tmp_path / "model.py"
    assert run("import", f"{source}:make", "--out", out).exit_code == 0
    arrays = out.with_suffix(".npz")
    arrays.write_bytes(arrays.read_bytes()[:-1] + b"?")
    with pytest.raises(AmpsimError, match=r"is not what model.py was written with; run ampsim imp"):
        ampsim.load_model(out)
    arrays.unlink()
    with pytest.raises(AmpsimError, match=r"model.npz: no such file; it belongs beside model.py"):
        ampsim.load_model(out)


def test_runs_are_kept_of_a_file_with_its_weights_and_not_of_changed_ones(source, tmp_path):
    from ampsim.forecasting.making import _code_of

    out = tmp_path / "model.py"
    run("import", f"{source}:make", "--out", out)
    model = ampsim.load_model(out)
    assert _code_of(model).startswith(model.origin["sha256"])
    doubled = {name: 2 * values for name, values in model.parameters().items()}
    with pytest.raises(AmpsimError, match="made or changed in Python"):
        _code_of(model.set_parameters(doubled))
