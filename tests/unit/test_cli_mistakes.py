"""What a user gets wrong on the command line is one line on standard error and exit code 2."""

import inspect
import re
from pathlib import Path
from typing import Any

import pytest
import typer
from covering import together

from ampsim import assets
from ampsim.cli import entry, mistakes

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
    "forecast --max-active-keys 0": "--max-active-keys must be a whole number >= 1, got 0",
    "forecast --schedule sequential --max-active-keys 0": "--max-active-keys must be .*, got 0",
    "forecast --min-update-interval 0": "--min-update-interval must be a whole number >= 1, got 0",
    "forecast --max-active-keys x": "--max-active-keys must be a whole number, or .*, got 'x'",
    "forecast --max-active-keys 2,,4": "or several .* such as 2,4,8, got '2,,4'",
    "gantt rnn --out x.png --max-active-keys 2,x": "or several .* such as 2,4,8, got '2,x'",
    "forecast --max-active-keys 2,0": "--max-active-keys must be a whole number >= 1, got 0",
    "forecast --min-update-interval 1,1": "must be numbers that differ, got '1,1'; leave out",
    "run rnn --max-active-keys 2,4": "run takes one schedule, got amp, 2 in flight; amp, 4 in",
    "forecast --staleness-budget -1": r"--staleness-budget must be a number >= 0, got -1\.0",
    "forecast --run-limit 0": r"--run-limit must be a time above 0 such as 60s, 30m or 2h, got .0.",
    "forecast --max-group 0": "--max-group must be a whole number >= 1, got 0",
    "forecast --group-wait-s 1e-6": "group_wait_s = 1e-06 waits for a group, but max_group = 1",
    "forecast --max-group 2 --group-wait-s -1": "--group-wait-s must be a number >= 0, got -1.0",
    "forecast --remedy x": "no remedy named 'x'; known: none, weight-prediction",
    "forecast --schedule amp,gpipe,1f1b": "1f1b needs a chain of stages, but rnn is none: it loops",
    "run rnn --schedule pipedream --vertical-sync": "pipedream needs a chain of stages, but rnn",
    "forecast --target 1.5": "--target must be an accuracy .* at most 1, got 1.5",
    "forecast --max-epochs 0": "--max-epochs must be a whole number >= 1, got 0",
    "forecast --repeats 0": "--repeats must be a whole number >= 1, got 0",
    "forecast --instances 0": "--instances must be a whole number >= 1, got 0",
    "forecast --seed -1": "--seed must be a whole number >= 0, got -1",
    "forecast --workers 0": "--workers must be 1 to 1000000, got 0",
    "forecast --latency-s -1": "--latency-s must be >= 0, got -1.0",
    "forecast --placement balance": r"no placement named 'balance'; did you mean 'balanced'\?",
    "run rnn --placement none.toml": "none.toml: cannot be read: no such file or directory",
    "forecast --mode slep": "--mode must be one of numeric, sleep, got 'slep'",
    "forecast --latency-s 1us": (
        "--latency-s must be a number of seconds, got '1us'; type .*-s 1e-06"
    ),
    "run mlp --latency-s=0.5ms": "got '0.5ms'; type --latency-s 0.0005",
    "forecast --bandwidth 10GB": (
        "no such option: --bandwidth; here it is --bandwidth-bytes-per-s, such"
    ),
    "forecast --bandwidth-bytes-per-s 10GB": (
        "number of bytes a second, got '10GB'; type .* 10000000000"
    ),
    "forecast --bandwidth-bytes-per-s 100Gbit/s": "type --bandwidth-bytes-per-s 12500000000$",
    "forecast --bandwidth-bytes-per-s fast": "got 'fast'; see 'ampsim forecast --help'",
    "forecast --workers 4,8": (
        "--workers must be a whole number, got '4,8'; for several run the command"
    ),
    "forecast --workers four": "--workers must be a whole number, got 'four'; see 'ampsim forecast",
    "forecast --latency-s 1e400us": "--latency-s must be a number of seconds, got '1e400us'; see",
    "forecast --workers 1e3": "--workers must be a whole number, got '1e3'; type --workers 1000$",
    "run rnn --seed 1.234567890123e12": "a whole number, got .*; type --seed 1234567890123$",
    "forecast --instances 1e30": "a whole number, got '1e30'; see 'ampsim forecast --help'$",
    "forecast --seed 1.5": "--seed must be a whole number, got '1.5'; see 'ampsim forecast --help'",
    "forecast -j 1,2": "--jobs must be a whole number, got '1,2'; for several",
    "forecast --target 97%": "--target must be a number, got '97%'; type --target 0.97",
    "forecast mlp --set hidden 64": "KEY=VALUE as one word, got 'hidden'; type --set hidden=64",
    "run mlp --rho 0.1": "no such option: --rho; here it is --moving-rate: of elastic solvers",
    "forecast mlp --lr 0.1": "no such option: --lr; here it is --set learning_rate=",
    "forecast --epochs 3": "no such option: --epochs; here it is --max-epochs",
    "forecast --budget 1e8s": r"--budget must be at most 10,000,000\.0, got 100000000\.0",
    "forecast --mode sleep --budget 5s": "--budget compares times to a target, and there is none "
    "in mode sleep; take numeric, or repeats instead",
    "explore rnn --for latency_s=0,1e-6 --seed -1": (
        "^ampsim: --seed must be a whole number >= 0, got -1; try --seed 0$"
    ),
    "explore rnn --for latency_s=0,1e-6 -j 0": "^ampsim: -j must be a whole number >= 1, got 0$",
    "forecast -j0": "^ampsim: -j must be a whole number >= 1, got 0$",
    "explore rnn --mode sleep --for workers=1": "no such option: --mode; see 'ampsim explore",
    "run mlp --max-epochs 3": r"no such option: --max-epochs; did you mean '--epochs'\? see",
    "run mlp --staleness-bound -1": (
        "^ampsim: ssp: --staleness-bound must be .* >= 0, got -1; 0 lets"
    ),
    "forecast --fresh": r"no such option: --fresh; see 'ampsim forecast --help'",
    "forecast --sed 3": "[Nn]o such option:? '?--sed'?",
    "forecast a b": r"unexpected extra argument.*\(b\); see 'ampsim forecast --help'",
    "forcast": "No such command 'forcast'",
    "run": "Missing argument 'MODEL'; see 'ampsim run --help'",
    "run rnn --schedule amp,pipeline": "run takes one schedule, got amp; pipeline; forecast",
    "forecast --trials 0": "--trials must be a whole number of learning rates from 2 to 64, got 0",
    "forecast --tune --trials 1": (
        "--tune must be a whole number of learning rates from 2 to 64, got"
    ),
    "forecast --validate-every 0": "--validate-every must be a whole number >= 1, got 0",
    "run rnn --validate-every 0": "--validate-every must be a whole number >= 1, got 0",
    "run mlp --schedule sync-sgd --compression 0": (
        "sync-sgd: --compression must be a number > 0 and"
    ),
    "run mlp --schedule ssp --compression 1.1": "the share of entries that is sent, got 1.1; try",
    "run mlp --schedule hogwild --compression nan": "compression.* nan",
    "run mlp --schedule async-sgd --compression 1%": (
        "--compression must be a number, got '1%'; type --compression 0.01"
    ),
    "run mlp --schedule sync-sgd --compression 0.1 --collective star": "take --collective 'ring'",
    "run rnn --epochs 0": "--epochs must be a whole number >= 1, got 0",
    "run rnn --target 2": "--target must be an accuracy .* at most 1, got 2.0",
    "run rnn --stretch 3": "--stretch stretches the wall clock only; add --clock wall",
    "run rnn --clock wall --stretch -3": "--stretch must be .*, got -3.0",
    "gantt rnn": "Missing option '--out'; see 'ampsim gantt --help'",
    "gantt rnn --out x.gif": r"must be one of \.png, .*, \.json, \.kineto, got '\.gif'",
    "gantt rnn --out x.png --window 3": "--window must be START:END .* 0:2e-5 .*, got '3'",
    "gantt rnn --out x.png --window a:b": "--window must be START:END .*, got 'a:b'",
    "gantt rnn --out x.png --window 3:1": "start < end, got 3 to 1",
    "gantt rnn --out x.json --json x.json": "--json must be a file of its own, got 'x.json', and",
    "run rnn --out o --json o": "--json must be a file of its own, got 'o', and 'o' besides",
    "run rnn --out o --json ./o/manifest.toml": "got './o/manifest.toml', in the folder 'o'",
    "forecast --out o --json o/forecast.csv": "folder 'o'; name one that ends in .json$",
    "run rnn --json run-rnn/manifest.toml": "in the folder '/.*/run-rnn'; name one that ends",
    "compare a b --json b/manifest.toml": "in the folder 'b'; name one that ends in .json$",
    "gantt a/. --out x.png --json a/spans.parquet": "in the folder 'a/.'; name one that ends",
    "report ./own --json own/recipe.toml": "in the folder './own'; name one that ends in",
    "check b.toml own.toml --json ./own.toml": "got './own.toml', and 'own.toml' besides; name",
    "import net.py:make --out own.py --json net.py": "got 'net.py', and 'net.py:make' besides",
    "models x": "no model named 'x'; shipped: .*rnn",
    "models --set hidden=3": "--graph and --set belong to one model; name it",
    "models rnn --graph x.bmp": r"suffix must be \.dot, got '\.bmp'",
    "models rnn --graph x": r"suffix must be \.dot, got 'none'; Graphviz makes a picture",
    "devices nix": f"no device named 'nix'; shipped: {', '.join(assets.names('devices'))}",
    "check nix.toml": "no device file 'nix.toml'; give the path of a .toml file",
    "check nix.py": "no model file 'nix.py'; give the path of a .py file",
    "check rnn": "rnn: expected a device, cluster or placement file",
}


@together(
    "command, rest, said", [(*f"{one} ".split(" ", 1), said) for one, said in MISTAKES.items()]
)
def test_a_mistake_is_one_line_that_names_it(command, rest, said, mistake, tmp_path):
    line = mistake(command, *rest.split())
    assert re.search(said, line), line
    assert list(tmp_path.iterdir()) == []


def test_a_key_that_varies_is_told_as_typed_in_for_though_an_option_has_its_name():
    words = ("explore", "rnn", "--workers", "2", "--for=workers=4..1")
    said = "workers must be a range A..B, such as workers=1..8 or workers=1..8:log, got '4..1'"
    assert mistakes.as_typed(said, words) == said
    assert mistakes.as_typed("workers must be 1", words[:4]) == "--workers must be 1"


def numeric_options():
    """Each option of each command that takes a number, with its command."""
    group: Any = typer.main.get_command(entry.app)
    for name, command in group.commands.items():
        hints = inspect.signature(command.callback).parameters
        for option in command.params:
            kinds = re.findall(r"\b(int|float)\b", str(hints.get(option.name, "")))
            if option.opts[0].startswith("-") and kinds:
                yield name, max(option.opts, key=len)


NEEDED = {
    "explore": ["rnn", "--for", "workers=1,2"],
    "search": ["rnn", "--for", "workers=1,2"],
    "gantt": ["rnn", "--out", "x.png"],
    "run": ["rnn"],
    "whatif": ["rnn"],
    "solve": ["rnn", "--for", "latency_s=1e-6..1", "--until", "epoch_s <= 1"],
}
"""What a command does not run without."""


@together("command, option", numeric_options())
def test_what_is_no_number_is_told_with_the_option_and_the_text(command, option, mistake):
    needed = NEEDED.get(command, [])
    line = mistake(command, *needed, option, "4,8")
    assert re.search(rf"{option} must be a (whole )?number.*, got '4,8'; for several ", line)


def test_a_number_of_more_digits_than_python_reads_is_told_as_any_other(mistake):
    line = mistake("forecast", "--workers", "9" * 5000)
    assert re.search("--workers must be a whole number, got '9+[.]{3}9+'; see 'ampsim", line)


def test_every_option_that_is_meant_exists_somewhere():
    group: Any = typer.main.get_command(entry.app)
    commands = group.commands.values()
    options = {one for command in commands for each in command.params for one in each.opts}
    for foreign, meant in mistakes.MEANT.items():
        assert re.findall("^[-a-z]+", meant)[0] in options, foreign


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
    (tmp_path / "taken.dot").mkdir()
    said = "taken.dot: it is a folder; choose another file name"
    assert said in mistake("models", "rnn", "--graph", "taken.dot")


def test_a_count_of_workers_other_than_the_cluster_file_has_is_named(mistake, tmp_path):
    cluster = '[[device]]\nname = "tflops-1"\ncount = 2\n'
    Path("two.toml").write_text(cluster)
    assert "workers must be 2, as in the cluster file two.toml, got 3" in mistake(
        "forecast", "--device", "two.toml", "--workers", "3"
    )


def test_control_characters_of_a_name_do_not_reach_the_terminal(mistake):
    assert "\x1b" not in mistake("models", "a\x1b[31m\nb")


def _options_with_values():
    """Each option of each command that takes a value."""
    group: Any = typer.main.get_command(entry.app)
    return [
        (name, one.opts[0])
        for name, command in group.commands.items()
        for one in command.params
        if one.param_type_name == "option" and not one.is_flag
    ]


@together("command, option", _options_with_values())
def test_no_option_may_be_empty(call, tmp_path, command, option):
    for words in ([option, ""], [f"{option}="]):
        ended = call(command, *words)
        assert (ended.code, ended.out) == (2, "")
        assert ended.err == (
            f"ampsim: {option} must not be empty, got ''; give a value, or leave it out\n"
        )
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("command", ["run", "check", "models", "devices", "data"])
def test_no_argument_may_be_empty(call, command):
    ended = call(command, "")
    assert ended.code == 2
    assert ended.err.startswith("ampsim: an argument must not be empty, got ''")


def test_a_value_of_any_length_leaves_the_line_readable(call):
    ended = call("models", "mlp", "--json", "9" * 100_000)
    assert ended.code == 2
    assert len(ended.err) < 2100
    assert ended.err.endswith("; choose a shorter one\n")


HUGE = "1" + "0" * 400
WHOLE = (
    "workers", "instances", "max-epochs", "epochs", "repeats", "seed", "jobs", "validate-every",
    "ranks", "workers-per-rank", "max-group", "servers", "period", "bucket-bytes",
    "staleness-bound", "backup-ranks", "ranks-per-group", "max-active-keys", "min-update-interval",
    "trials", "learn",
)  # fmt: skip


@together(
    "command, option",
    [one for one in _options_with_values() if one[1].removeprefix("--") in WHOLE],
)
def test_a_whole_number_beyond_all_bounds_is_refused_in_one_short_line(call, command, option):
    ended = call(command, "rnn", "--schedule", "amp,sync-sgd,ssp,easgd", option, HUGE)
    lines = ended.err.splitlines()
    assert ended.code == 2, ended.err
    assert len([line for line in lines if not line.startswith("ampsim: note: ")]) == 1
    assert max(map(len, lines)) < 700


@pytest.mark.parametrize("inner", ["sync-sgd:2/" * 400, "sync-sgd:2/" * 400 + "amp"])
def test_solvers_within_each_other_have_a_bound(call, inner):
    ended = call("run", "rnn", "--schedule", "sync-sgd", "--inner", inner)
    assert ended.code == 2
    assert ended.err.startswith(
        "ampsim: --inner must name at most 8 solvers within each other, got "
    )
    assert len(ended.err) < 200


@pytest.mark.parametrize("kind", ["mesh", "torus", "hierarchy"])
def test_dimensions_and_levels_have_a_bound(call, kind):
    ended = call("run", "rnn", "--topology", f"{kind}:{'x'.join('1' * 3000)}x16")
    assert (ended.code, ended.err) == (
        2,
        f"ampsim: topology {kind} must have at most 20 numbers, got 3001\n",
    )
