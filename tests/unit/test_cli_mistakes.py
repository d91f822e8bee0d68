"""What a user gets wrong on the command line is one line on standard error and exit code 2."""

import re
from pathlib import Path

import pytest

from ampsim import assets

MISTAKES = {
    "forecast rrn": r"no model named 'rrn'; did you mean 'rnn'\?",
    "forecast --device tflop-1": r"no device named 'tflop-1'; did you mean 'tflops-1'\?",
    "forecast --schedule amp,pipline": r"no schedule named 'pipline'; did you mean 'pipeline'\?",
    "forecast --schedule amp,,pipeline": "separated by single commas, got 'amp,,pipeline'; known: ",
    "forecast --schedule amp,AMP": "schedules must differ, got amp twice in 'amp,AMP'",
    "forecast --set hidden": "a setting must be KEY=VALUE, got 'hidden'; for example hidden=64",
    "forecast --set =3": "a setting must be KEY=VALUE, got '=3'",
    "forecast --set hidden=3 --set hidden=4": "settings must differ, got hidden twice",
    "forecast --set hiden=3": r"no field named 'hiden'; did you mean 'hidden'\?",
    "forecast --set name_or_path=3": "no field named 'name_or_path'",
    "forecast --set hidden=abc": "field 'hidden': .*valid integer.*, got 'abc'",
    "forecast --max-active-keys 0": "max_active_keys must be a whole number >= 1, got 0",
    "forecast --schedule sequential --max-active-keys 0": "max_active_keys must be .*, got 0",
    "forecast --min-update-interval 0": "min_update_interval must be a whole number >= 1, got 0",
    "forecast --max-active-keys x": "--max-active-keys must be a whole number, or .*, got 'x'",
    "forecast --max-active-keys 2,,4": "or several .* such as 2,4,8, got '2,,4'",
    "gantt rnn --out x.png --max-active-keys 2,x": "or several .* such as 2,4,8, got '2,x'",
    "forecast --max-active-keys 2,0": "max_active_keys must be a whole number >= 1, got 0",
    "forecast --min-update-interval 1,1": "must be numbers that differ, got '1,1'; leave out",
    "run rnn --max-active-keys 2,4": "run takes one schedule, got amp, 2 in flight; amp, 4 in",
    "forecast --staleness-budget -1": r"staleness_budget must be a number >= 0, got -1\.0",
    "forecast --max-group 0": "max_group must be a whole number >= 1, got 0",
    "forecast --group-wait-s 1e-6": "group_wait_s = 1e-06 waits for a group, but max_group = 1",
    "forecast --max-group 2 --group-wait-s -1": "group_wait_s must be a number >= 0, got -1.0",
    "forecast --remedy x": "no remedy named 'x'; known: none, weight-prediction",
    "forecast --schedule amp,gpipe,1f1b": "1f1b needs a chain of stages, but rnn is none: it loops",
    "run rnn --schedule pipedream --vertical-sync": "pipedream needs a chain of stages, but rnn",
    "forecast --target 1.5": "target must be an accuracy .* at most 1, got 1.5",
    "forecast --max-epochs 0": "max_epochs must be a whole number >= 1, got 0",
    "forecast --repeats 0": "repeats must be a whole number >= 1, got 0",
    "forecast --instances 0": "instances must be a whole number >= 1, got 0",
    "forecast --seed -1": "seed must be a whole number >= 0, got -1",
    "forecast --workers 0": "workers must be 1 to 1000000, got 0",
    "forecast --latency-s -1": "latency_s must be >= 0, got -1.0",
    "forecast --placement balance": r"no placement named 'balance'; did you mean 'balanced'\?",
    "run rnn --placement none.toml": "none.toml: cannot be read: no such file or directory",
    "forecast --mode slep": "'--mode': .*'numeric', 'sleep'",
    "forecast --sed 3": "[Nn]o such option:? '?--sed'?",
    "forecast a b": r"unexpected extra argument.*\(b\); see 'ampsim forecast --help'",
    "forcast": "No such command 'forcast'",
    "run": "Missing argument 'MODEL'; see 'ampsim run --help'",
    "run rnn --schedule amp,pipeline": "run takes one schedule, got amp; pipeline; forecast",
    "forecast --trials 0": "tune must be a whole number of learning rates from 2 to 64, got 0; try",
    "forecast --tune --trials 1": "tune must be a whole number of learning rates from 2 to 64, got",
    "forecast --validate-every 0": "validate_every must be a whole number >= 1, got 0",
    "run rnn --validate-every 0": "validate_every must be a whole number >= 1, got 0",
    "run mlp --schedule sync-sgd --compression 0": "sync-sgd: compression must be a number > 0 and",
    "run mlp --schedule ssp --compression 1.1": "the share of entries that is sent, got 1.1; try",
    "run mlp --schedule hogwild --compression nan": "compression.* nan",
    "run mlp --schedule async-sgd --compression 1%": "'--compression': .* number",
    "run mlp --schedule sync-sgd --compression 0.1 --collective star": "take collective='ring'",
    "run rnn --epochs 0": "epochs must be a whole number >= 1, got 0",
    "run rnn --target 2": "target must be an accuracy .* at most 1, got 2.0",
    "run rnn --stretch 3": "--stretch stretches the wall clock only; add --clock wall",
    "run rnn --clock wall --stretch -3": "stretch must be .*, got -3.0",
    "gantt rnn": "Missing option '--out'; see 'ampsim gantt --help'",
    "gantt rnn --out x.gif": r"must be one of \.png, \.svg, \.pdf, \.html, \.json, got '\.gif'",
    "gantt rnn --out x.png --window 3": "--window must be START:END .* 0:2e-5 .*, got '3'",
    "gantt rnn --out x.png --window a:b": "--window must be START:END .*, got 'a:b'",
    "gantt rnn --out x.png --window instance:3-1": "rise, such as instance:1-3",
    "gantt rnn --out x.png --window 3:1": "start < end, got 3 to 1",
    "models x": "no model named 'x'; shipped: .*rnn",
    "models --set hidden=3": "--graph and --set belong to one model; name it",
    "models rnn --graph x.bmp": r"suffix must be one of .*\.svg, \.pdf, \.dot, got '\.bmp'",
    "models rnn --graph x": r"suffix must be one of .*, got none",
    "devices nix": f"no device named 'nix'; shipped: {', '.join(assets.names('devices'))}",
    "check nix.toml": "no device file 'nix.toml'; give the path of a .toml file",
    "check nix.py": "no model file 'nix.py'; give the path of a .py file",
    "check rnn": "rnn: expected a device, cluster or placement file",
}


@pytest.mark.parametrize("words", MISTAKES)
def test_a_mistake_is_one_line_that_names_it(words, mistake, tmp_path):
    line = mistake(*words.split())
    assert re.search(MISTAKES[words], line), line
    assert list(tmp_path.iterdir()) == []


def test_an_output_folder_that_is_a_file_is_found_before_the_work(mistake, tmp_path):
    (tmp_path / "taken").write_text("mine")
    for command in (["forecast"], ["run", "rnn"]):
        assert "taken: it exists and is not a folder" in mistake(*command, "--out", "taken")
    assert (tmp_path / "taken").read_text() == "mine"


def test_an_output_file_that_is_a_folder_is_found_before_the_work(mistake, tmp_path):
    (tmp_path / "taken.png").mkdir()
    said = "taken.png: it is a folder; choose another file name"
    assert said in mistake("forecast", "--json", "taken.png")
    assert said in mistake("gantt", "rnn", "--out", "taken.png")
    assert said in mistake("models", "rnn", "--graph", "taken.png")


def test_a_count_of_workers_other_than_the_cluster_file_has_is_named(mistake, tmp_path):
    cluster = '[[device]]\nname = "tflops-1"\ncount = 2\n'
    Path("two.toml").write_text(cluster)
    assert "workers must be 2, as in the cluster file two.toml, got 3" in mistake(
        "forecast", "--device", "two.toml", "--workers", "3"
    )


def test_control_characters_of_a_name_do_not_reach_the_terminal(mistake):
    assert "\x1b" not in mistake("models", "a\x1b[31m\nb")
