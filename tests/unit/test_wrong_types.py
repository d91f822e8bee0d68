"""Every public callable x argument x wrong value: one line that names the argument, or it works."""

# pyright: reportArgumentType=false, reportCallIssue=false
# Wrong arguments are what it is about.

import importlib.util
import inspect
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from program_models import PROGRAMS_ONLY

import ampsim
import ampsim.figures
from ampsim.arguments import checked, fitting
from ampsim.assets import names
from ampsim.clock import WallClock
from ampsim.data import ArrayDataset
from ampsim.data_parallel import SOLVERS
from ampsim.dataflow import PROGRAMS
from ampsim.errors import AmpsimError, OptionError
from ampsim.model_parallel import SCHEDULES
from ampsim.study.loading import option_names

WRONG = [
    None, True, -1, 0, 2**63, 10**30, 10**400, 1.5, math.nan, math.inf, 1j, "", "x", "\x00", b"x",
    [], [1], (), (1, 2), {}, {"a": 1}, set(), object(), object, int, len, Ellipsis, NotImplemented,
    np.int64(-3), np.float64("nan"), np.bool_(True), np.array([]), np.array([1.0, 2.0]),
    pd.DataFrame(), np.zeros((2, 2)), Path("nowhere"), range(3), slice(1), Exception("x"),
    lambda *a, **k: None,
]  # fmt: skip
SLOW = {"epochs", "max_epochs", "repeats", "seed", "stretch", "batch"}
"""Arguments with which a call can be right and long."""


@pytest.fixture(scope="module")
def right(model, cluster, result):
    """For each public callable, arguments that it takes; the names of all that it has."""
    arrays = (np.ones((4, 2)), np.zeros(4, int))
    short = {"instances": 20, "mode": "sleep"}
    made = {
        "simulate": (
            ampsim.simulate, {"model": model, "cluster": cluster, "schedule": "amp", **short},
        ),
        "forecast": (
            ampsim.forecast,
            {"model": model, "cluster": cluster, "schedules": "amp", "jobs": 1, **short},
        ),
        **questions(model, cluster),
        "load_cluster": (ampsim.load_cluster, {"name_or_path": "tflops-1"}),
        "try_out": (ampsim.try_out, {"model": model}),
        "load_run": (ampsim.load_run, {"folder": "nowhere"}),
        **imports(result),
        "Device": (ampsim.Device, {"name": "d", "flop_per_s": 1e12}),
        "Link": (ampsim.Link, {}),
        "Cluster": (ampsim.Cluster, {"name": "c", "devices": cluster.devices}),
        "ArrayDataset": (ArrayDataset, {"train": arrays, "valid": arrays}),
        "WallClock": (WallClock, {}),
        "Model": (
            ampsim.Model,
            {name: getattr(model, name) for name in inspect.signature(ampsim.Model).parameters},
        ),
        "DependencyEngine": (ampsim.DependencyEngine, {"cluster": cluster}),
        "Work": (ampsim.Work, {}),
        "Naive": (ampsim.Naive, {}),
        "Pooled": (ampsim.Pooled, {}),
        "PerDevice": (ampsim.PerDevice, {}),
        **{kind.__name__: (kind, {}) for kind in SCHEDULES.values()},
        **{kind.__name__: (kind, {}) for kind in SOLVERS.values()},
        **{kind.__name__: (kind, {}) for kind in PROGRAMS.values()},
    }  # fmt: skip
    for name in ("gantt", "staleness", "utilisation"):
        made[f"figures.{name}"] = (getattr(ampsim.figures, name), {"results": result})
    for name in ("convergence", "plane"):
        made[f"figures.{name}"] = (getattr(ampsim.figures, name), {"forecast": None})
    return made


def questions(model, cluster):
    """Of the functions that ask many runs."""
    asked = {"model": model, "cluster": cluster, "schedules": "amp", "instances": 20, "jobs": 1}
    return {
        "whatif": (ampsim.whatif, {**asked, "mode": "sleep", "learn": 0}),
        "solve": (
            ampsim.solve, {**asked, "over": {"latency_s": "1e-6..1e-5"}, "until": "epoch_s <= 0"},
        ),
        "explore": (
            ampsim.explore, {**asked, "over": {"workers": [1]}, "max_epochs": 1, "repeats": 1},
        ),
        "search": (
            ampsim.search,
            {**asked, "over": {"workers": [1]}, "minimise": "epoch_s", "trials": 1},
        ),
    }  # fmt: skip


def imports(result):
    """Of what takes models from elsewhere, and gives them back."""
    return {
        "to_torch": (ampsim.to_torch, {"result": result}),
        "from_torch": (ampsim.from_torch, of_torch()),
    }


def of_torch():
    """Arguments of `from_torch`; where there is no PyTorch, it refuses whatever it is given."""
    if importlib.util.find_spec("torch") is None:
        return dict.fromkeys(("module", "example_inputs", "loss", "data", "optimizer"))
    import torch

    net, x, y = torch.nn.Linear(2, 2), torch.ones(4, 2), torch.zeros(4, dtype=torch.int64)
    return {
        "module": net, "example_inputs": x, "loss": torch.nn.CrossEntropyLoss(),
        "data": ((x, y), (x, y)), "optimizer": torch.optim.SGD(net.parameters(), 0.1),
    }  # fmt: skip


def calls(right):
    """(name, argument, call of a wrong value) of every public callable and argument."""
    for name, (function, given) in right.items():
        for parameter in inspect.signature(function).parameters.values():
            if parameter.name in SLOW | {"folder", "given", "on_progress", "on_run", "run_limit_s"}:
                continue

            def call(value, function=function, given=given, parameter=parameter):
                if parameter.kind is inspect.Parameter.VAR_POSITIONAL:
                    return function(value)
                return function(**{**given, parameter.name: value})

            yield name, parameter.name, call


def test_every_public_callable_says_in_one_line_what_it_was_given(right, only):
    only(factor=2.0)
    tried, wrong = 0, []
    for name, argument, call in calls(right):
        for value in WRONG:
            if argument == "instances" and value is None:  # all, which takes long
                continue
            tried += 1
            try:
                call(value)
            except AmpsimError as error:
                if "\n" in str(error) or len(str(error)) > 700:
                    wrong.append(f"{name}({argument}={value!r:.40}): {str(error)!r:.200}")
            except Exception as error:
                wrong.append(f"{name}({argument}={value!r:.40}): {type(error).__name__}: {error}")
    assert not wrong, "\n".join(wrong)
    assert tried > 1500


def test_every_public_callable_is_tried(right):
    public = {name for name in dir(ampsim) if callable(getattr(ampsim, name))}
    not_made_by_users = {
        "AmpsimError", "EngineResult", "Exploration", "Forecast", "Result", "Searched", "Solved",
        "WhatIf", "load_model", "stream",
    }  # fmt: skip
    assert public - not_made_by_users <= set(right)


@pytest.mark.parametrize("value", WRONG, ids=lambda value: f"{value!r:.20}")
def test_load_model_refuses_what_is_no_name(value):
    with pytest.raises(AmpsimError) as caught:
        ampsim.load_model(value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("argument", sorted(SLOW - {"stretch", "batch"}))
@pytest.mark.parametrize("value", ["x", None, 1.5, True, -1, 10**400, np.float32(2), [3]])
def test_counts_of_a_run_are_whole_numbers(model, cluster, argument, value):
    with pytest.raises(OptionError, match=rf"^{argument} must be ") as caught:
        ampsim.forecast(
            model, cluster, "amp", **{"max_epochs": 1, "instances": 200, argument: value}
        ) if (argument != "epochs") else ampsim.simulate(model, cluster, "amp", epochs=value)
    assert len(str(caught.value)) < 200


@pytest.mark.parametrize("value", [0, -1, 0.0, "x", True, math.nan])
@pytest.mark.parametrize("asked", [ampsim.forecast, ampsim.whatif])
def test_a_limit_of_time_is_above_zero(model, cluster, asked, value):
    with pytest.raises(OptionError, match=r"^run_limit_s must be a .*number above 0, got "):
        asked(model, cluster, "amp", mode="sleep", instances=20, run_limit_s=value)
    with pytest.raises(OptionError, match=r"^budget_s must be a .*number above 0, got "):
        ampsim.forecast(model, cluster, "amp", mode="sleep", instances=20, budget_s=value)


@pytest.mark.parametrize("kind", [np.int8, np.int64, np.uint16])
def test_numpy_s_scalars_are_python_s_numbers(model, cluster, kind):
    half: Any = np.float32(0.5)
    schedule = ampsim.Amp(kind(2), kind(3), group_wait_s=half, max_group=kind(2))
    assert schedule == ampsim.Amp(2, 3, group_wait_s=0.5, max_group=2)
    assert {type(value) for value in vars(schedule).values()} <= {int, float, str}
    device = ampsim.Device(name="d", flop_per_s=kind(100), operation_overhead_s=np.float64(0.5))
    assert (device.flop_per_s, type(device.flop_per_s)) == (100.0, float)
    many: Any = np.int64(200)
    made = ampsim.simulate(model, cluster, "amp", instances=many, seed=kind(3), mode="sleep")
    assert made.origin["seed"] == 3 and type(made.origin["seed"]) is int


def test_names_stand_for_what_they_name(model, cluster):
    short = {"instances": 500, "mode": "sleep"}
    named = ampsim.simulate("rnn", "tflops-1", "amp", **short)
    made = ampsim.simulate(
        ampsim.load_model("rnn"), ampsim.load_cluster("tflops-1"), ampsim.Amp(), **short
    )
    assert named.digest == made.digest
    rows = ampsim.forecast(model, cluster, ["amp", ampsim.Sequential()], **short).table["schedule"]
    assert list(rows) == ["amp", "sequential"]


UNTYPED: Any = ampsim  # a user's mistakes, which a type checker would see


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (
            lambda: UNTYPED.simulate("rnn", "tflops-1", ampsim.Amp),
            "schedule must be a schedule such as ampsim.Amp(), or the name of one, "
            "got the class Amp",
        ),
        (lambda: UNTYPED.Amp("8"), "max_active_keys must be a whole number >= 1, got '8'"),
        (lambda: UNTYPED.Amp({}), "max_active_keys must be a whole number >= 1, got {} (dict)"),
        (
            lambda: UNTYPED.Amp(2**63),
            "max_active_keys must be at most 1,000,000,000, got 9223372036854775808",
        ),
        (
            lambda: UNTYPED.figures.gantt(3),
            "results must be a Result, a LoadedRun or an EngineResult, got 3",
        ),
        (
            lambda: UNTYPED.explore("mlp", "p100", "amp", over=[1]),
            "over must be a mapping to text or a list of a number, a whole number or text, "
            "got [1] (list)",
        ),
        (lambda: UNTYPED.Link(latency_s="1"), "Link: latency_s must be a number, got '1'"),
        (lambda: UNTYPED.forecast("rnn"), "forecast: missing a required argument: 'cluster'"),
    ],
)  # fmt: skip
def test_the_line_says_argument_expected_and_what_came(call, text):
    with pytest.raises(OptionError) as caught:
        call()
    assert str(caught.value) == text


@pytest.mark.parametrize(
    ("hint", "value", "expected"),
    [
        (int, np.int64(3), 3), (float, 3, 3), (float, np.float32(0.5), 0.5), (bool, np.True_, True),
        (int | None, None, None), (list[int], [np.int8(1)], [1]), (tuple[int, int], (1, 2), (1, 2)),
        (dict[str, int], {"a": np.int8(1)}, {"a": 1}), (str, np.str_("a"), "a"),
        (str | Sequence[float | int], np.array([0.5, 2.0]), [0.5, 2.0]),
        (Sequence[float | int], pd.Series([2, 4]), [2, 4]),
        (Sequence[str], np.array(["ring", "star"]), ["ring", "star"]),
    ],
)  # fmt: skip
def test_what_fits_comes_out_as_declared(hint, value, expected):
    fitted = fitting("x", value, hint)
    assert fitted == expected and type(fitted) is type(expected)


def test_a_checked_function_keeps_name_signature_and_docstring():
    @checked
    def one(count: int, *rest: str, **named: float) -> int:
        """Say one."""
        return count

    assert (one.__name__, one.__doc__, one(3, "a", x=1)) == ("one", "Say one.", 3)
    assert list(inspect.signature(one).parameters) == ["count", "rest", "named"]
    wrong: Any = one
    for call in (lambda: wrong(1, 2), lambda: wrong(1, x="y"), lambda: wrong()):
        with pytest.raises(OptionError):
            call()


@pytest.mark.parametrize("name", names("models"))
def test_no_whole_number_of_a_model_hangs_or_fills_the_memory(name):
    config = ampsim.load_model(name).config
    for field, value in vars(config).items():
        if type(value) is int and field not in ("batch", "steps"):  # which only take time
            for huge in (10**30, 2**63):
                with pytest.raises(AmpsimError) as caught:
                    ampsim.load_model(name, **{field: huge}).data(0)
                assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", sorted({*names("models")} - {"profile"}))  # whose data take none
@pytest.mark.parametrize("instances", [10**9, 2**31, 2**63, 10**30])
def test_instances_that_would_fill_the_memory_are_refused_with_how_much(cluster, name, instances):
    options = {"data": "synthetic"} if "data" in option_names(name) else {}
    model = ampsim.load_model(name, **options)
    schedule = "dataflow" if name in PROGRAMS_ONLY else "amp"
    with pytest.raises(OptionError, match=r"memory; take at most|must be at most"):
        ampsim.simulate(model, cluster, schedule, instances=instances, mode="sleep")


@pytest.mark.parametrize("field", ["flop_per_s", "cache_bandwidth_bytes_per_s"])
def test_a_masked_number_is_refused_without_numpy_s_warning(field):
    values: dict[str, Any] = {"name": "d", "flop_per_s": 1.0, field: np.ma.masked}
    with pytest.raises(OptionError, match=f"^Device: {field} must be a finite number, got nan"):
        ampsim.Device(**values)
