"""No option is taken and ignored: one that would change nothing is refused in a line, or told."""

from __future__ import annotations

import pytest

import ampsim
from ampsim.cli.options import Hardware, Tuning
from ampsim.cli.questions import Question
from ampsim.errors import OptionError

SMALL = "--set data=synthetic --set hidden=8 --workers 2 --instances 40"
ASLEEP = "has no effect in mode sleep, which times one epoch and learns nothing; leave it out"
BY_TIMING = "has no effect on a search that minimises epoch_s, which follows from timing; leave"
ONCE = "--until epoch_s<=1 --for device.flop_per_s=1e9..1e12"
REFUSED = {
    f"forecast mlp {SMALL} --mode sleep --scale-rate none": f"--scale-rate {ASLEEP}",
    f"forecast mlp {SMALL} --no-tune --trials 3": "--no-tune tries no learning rates, and --trials",
    f"forecast mlp {SMALL} --no-tune --budget 9s": "--budget says how much is tried and run; leave",
    f"forecast mlp {SMALL} --data here": "--data here has no effect beside --set data=synthetic",
    f"run mlp {SMALL} --set folder=x --out o": "--set folder=x has no effect beside --set data=",
    f"whatif mlp {SMALL} --mode sleep --target 0.9": f"--target {ASLEEP}",
    f"whatif mlp {SMALL} --mode sleep --max-epochs 9": f"--max-epochs {ASLEEP}",
    f"whatif mlp {SMALL} --mode sleep --repeats 2": f"--repeats {ASLEEP}",
    f"whatif mlp {SMALL} --mode sleep --learn 2": f"--learn {ASLEEP}",
    "whatif profile --learn 2": "--learn has no effect without a target, which profile has not",
    "whatif profile --repeats 2": "--repeats has no effect without a target",
    f"solve mlp {SMALL} {ONCE} --target 0.9": "--target has no effect on 'epoch_s<=1', which follo",
    f"solve mlp {SMALL} {ONCE} --max-epochs 2": "--max-epochs has no effect on 'epoch_s<=1'",
    f"explore mlp {SMALL} --for latency_s=0,1 --points 3": "--points has no effect where --for nam",
    "report --jobs 2": "--jobs has no effect where recipes are listed; leave it out",
    "report --out there": "--out has no effect where recipes are listed",
    "report --list --check": "--check has no effect where recipes are listed",
    "report mine --list --redraw": "--redraw has no effect where recipes are listed",
    "report mine --check --jobs 2": "--jobs has no effect beside --check without --rerun",
    "report mine --redraw --run-limit 5m": "--run-limit has no effect beside --redraw",
}


@pytest.mark.parametrize("words", REFUSED)
def test_an_option_that_would_change_nothing_is_refused(words, mistake, tmp_path, small_recipe):
    recipe = tmp_path / "reports" / "mine" / "recipe.toml"
    recipe.parent.mkdir(parents=True)
    recipe.write_text(small_recipe)
    assert mistake(*words.split()).startswith(f"ampsim: {REFUSED[words]}")
    assert [one.name for one in tmp_path.iterdir()] == ["reports"]


@pytest.mark.parametrize("tune", [None, 2])
def test_what_a_budget_leaves_alone_is_refused_without_one(tune):
    with pytest.raises(OptionError, match=r"^fixed is .*give budget_s=60, or leave it out$"):
        ampsim.forecast("rnn", "tflops-1", "amp", instances=20, fixed=["decay"], tune=tune)


OF_SEARCH = {
    "--minimise epoch_s --target 0.9": f"--target {BY_TIMING}",
    "--minimise epoch_s --max-epochs 9": f"--max-epochs {BY_TIMING}",
    "--minimise epoch_s --repeats 2": f"--repeats {BY_TIMING}",
    "--minimise epoch_s --no-prune": f"--no-prune {BY_TIMING}",
    "--sampler random --against-random": "--against-random has no effect beside --sampler random",
}


@pytest.mark.parametrize("words", OF_SEARCH)
def test_an_option_of_a_search_that_would_change_nothing_is_refused(words, mistake):
    pytest.importorskip("optuna", reason="optuna is not installed")
    told = mistake("search", "mlp", *SMALL.split(), "--for", "latency_s=0,1e-6", *words.split())
    assert told.startswith(f"ampsim: {OF_SEARCH[words]}")


@pytest.mark.parametrize("words", list(OF_SEARCH)[-2:])
def test_an_option_of_a_search_beside_a_recipe_is_refused_as_well(words, mistake, tmp_path):
    pytest.importorskip("optuna", reason="optuna is not installed")
    asked = "[search]\nover = { latency_s = [0.0, 1e-6] }\n[[schedules]]\nname = 'amp'\n"
    head = "title = 'Which?'\nmodel = 'mlp'\nset = { data = 'synthetic' }\n"
    head += "seeds = [0]\ntarget = 0.5\nmax_epochs = 1\n"
    (tmp_path / "recipe.toml").write_text(head + asked)
    told = mistake("search", "recipe.toml", *words.split())
    assert told.startswith(f"ampsim: {OF_SEARCH[words]}")


NOTED = {
    "forecast --mode sleep --target 0.9 --max-epochs 3": [
        "--target has no effect in mode sleep, which times one epoch and learns nothing",
        "--max-epochs has no effect in mode sleep, which times one epoch and learns nothing",
    ],
    "forecast --mode sleep --json - --columns all": [
        "--columns has no effect beside --json -, which prints no table"
    ],
    "run --mode sleep --target 0.9": [
        "--target has no effect in mode sleep, which measures nothing"
    ],
}


@pytest.mark.usefixtures("undrawn")
@pytest.mark.parametrize("words", NOTED)
def test_what_is_asked_of_all_runs_alike_is_noted_where_it_changes_nothing(words, call):
    command, *others = words.split()
    ended = call(command, "mlp", *SMALL.split(), "--quiet", "--schedule", "amp", *others)
    assert ended.code == 0
    assert ended.err.splitlines()[: len(NOTED[words])] == [
        f"ampsim: note: {one}" for one in NOTED[words]
    ]


@pytest.mark.usefixtures("undrawn")
def test_what_is_true_of_one_epoch_is_no_mistake(call, only):
    only(factor=2.0)
    words = (*SMALL.split(), "--quiet", "--mode", "sleep", "--max-epochs", "1")
    assert call("forecast", "mlp", *words, "--repeats", "2").code == 0
    assert call("whatif", "mlp", *words, "--repeats", "1", "--learn", "0").code == 0


@pytest.mark.usefixtures("undrawn")
def test_no_tune_leaves_rates_as_they_are_where_a_budget_would_tune_them(call):
    words = (*SMALL.split(), "--quiet", "--max-epochs", "1", "--target", "0.05", "--no-tune")
    ended = call("forecast", "mlp", *words)
    assert ended.code == 0
    assert "none tuned" in ended.out
    assert "budget" not in ended.out


OVERRULED = {
    "model.hidden=4,8": "--set hidden=4 has no effect, for --for says model.hidden",
    "device=p100,cpu-core": "--device has no effect, for --for says device",
}


@pytest.mark.parametrize("over", OVERRULED)
def test_what_for_says_anew_of_the_model_or_device_is_told(over, capsys):
    asked = Question(
        settings=["hidden=4", "data=synthetic"],
        hardware=Hardware(device="p100", workers=2), tuning=Tuning(),
    )  # fmt: skip
    asked.setup("mlp", "amp", [over])
    assert capsys.readouterr().err == f"ampsim: note: {OVERRULED[over]}\n"


def test_groups_of_devices_say_how_many_there_are_beside_devices_that_vary(capsys):
    asked = Question(hardware=Hardware(device="p100:2,cpu-core:1"), tuning=Tuning())
    asked.setup("rnn", "amp", ["device=p100,cpu-core"])
    assert capsys.readouterr().err == ""
