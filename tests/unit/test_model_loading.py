"""Model files: a stranger's file and the shipped one, and one clear line for each mistake."""

import os
import re
import sys
import textwrap

import pytest

from ampsim import Model, load_model
from ampsim.assets import locate, names
from ampsim.errors import AmpsimError, FileFormatError, GraphError, OptionError, UnknownNameError
from ampsim.study.loading import execute
from ampsim.study.model import options_of

CONFIG = """\
from dataclasses import dataclass

@dataclass(frozen=True)
class Config:
    width: int = 2
"""


@pytest.fixture
def write(tmp_path):
    def write(text, name="mine.py"):
        path = tmp_path / name
        path.write_text(textwrap.dedent(text), encoding="utf-8")
        return path

    return write


def message(path, kind: type[AmpsimError] = FileFormatError, **overrides):
    """The one line that loading a wrong file gives, without the file's own path in front."""
    with pytest.raises(kind) as caught:
        load_model(path, **overrides)
    text = str(caught.value)
    assert "\n" not in text
    return text.removeprefix(f"{path}: ")


@pytest.mark.parametrize(
    ("field", "value", "expected"),
    [
        ("hidden", 0, "input should be greater than or equal to 1, got 0"),
        ("hidden", "-3", "input should be greater than or equal to 1, got '-3'"),
        ("replicas", 0, "input should be greater than or equal to 1, got 0"),
        ("batch", 0, "input should be greater than or equal to 1, got 0"),
        ("min_update_interval", -1, "input should be greater than or equal to 1, got -1"),
        ("dtype", "int8", "input should be 'float32' or 'float64', got 'int8'"),
        ("learning_rate", -1, "input should be greater than 0, got -1"),
        ("learning_rate", "nan", "input should be a finite number, got 'nan'"),
        ("learning_rate", "inf", "input should be a finite number, got 'inf'"),
        ("decay", 2, "input should be less than or equal to 1, got 2"),
        ("decay", 0, "input should be greater than 0, got 0"),
        (
            "hidden",
            "wide",
            "input should be a valid integer, unable to parse string as an integer, got 'wide'",
        ),
        (
            "hidden",
            1.5,
            "input should be a valid integer, got a number with a fractional part, got 1.5",
        ),
    ],
)
def test_an_option_of_the_rnn_that_does_not_fit_is_named(field, value, expected):
    assert message("rnn", OptionError, **{field: value}) == f"field {field!r}: {expected}"


def test_an_unknown_option_gets_the_nearest():
    text = (
        "no field named 'hiden'; did you mean 'hidden'? known: batch, decay, digits, dtype, "
        "hidden, learning_rate, min_update_interval, replicas"
    )
    assert message("rnn", UnknownNameError, hiden=3) == text


def test_strings_are_read_as_the_fields_types():
    config = load_model("rnn", hidden="8", learning_rate="1e-3", replicas="2").config
    assert (config.hidden, config.learning_rate, config.replicas) == (8, 1e-3, 2)


def test_a_loaded_model_says_where_it_is_from():
    model = load_model("rnn", hidden=4)
    assert model.origin["file"] == "rnn.py"
    assert re.fullmatch("[0-9a-f]{64}", model.origin["sha256"])


def test_a_copy_of_a_shipped_file_has_the_same_standing(tmp_path):
    copy = tmp_path / "copy.py"
    copy.write_bytes(locate("models", "rnn").read_bytes())
    mine, shipped = load_model(copy, hidden=4), load_model("rnn", hidden=4)
    assert isinstance(mine, Model)
    assert mine.origin["sha256"] == shipped.origin["sha256"]
    for name, array in mine.parameters().items():
        assert (array == shipped.parameters()[name]).all()


def test_unknown_model_gets_the_nearest():
    expected = f"no model named 'rn'; did you mean 'rnn'? shipped: {', '.join(names('models'))}"
    assert message("rn", UnknownNameError) == expected


def test_missing_file_is_named(tmp_path):
    path = tmp_path / "absent.py"
    assert message(path, UnknownNameError).startswith(f"no model file {str(path)!r}; give the path")


def test_what_is_no_python_file_is_told(tmp_path, write):
    text = "expected a Python file (.py) with Config and build(config)"
    assert message(write("x", "mine.txt")) == text
    (tmp_path / "mine").mkdir()
    told = "expected a model file (.py), got a folder; there is none in it"
    assert message(tmp_path / "mine", UnknownNameError).endswith(told)


@pytest.mark.parametrize(
    ("text", "missing"),
    [("def build(config): ...", "Config"), (CONFIG, "build"), (CONFIG + "build = 3", "build")],
)
def test_a_file_without_config_or_build_is_told_what_works(write, text, missing):
    told = message(write(text))
    assert told.startswith(
        f"expected Config and build(config), got no {missing}; a file that works"
    )
    assert told.endswith("rnn.py")


def test_a_config_that_is_no_dataclass_is_told(write):
    path = write("class Config:\n    width: int = 2\n\ndef build(config): ...\n")
    assert (
        message(path) == "Config must be a dataclass, got a type; put @dataclass(frozen=True) on it"
    )


def test_a_field_of_no_plain_type_is_told(write):
    unknown = "class Thing: ...\n" + CONFIG.replace("int = 2", "Thing = None")
    told = message(write(unknown + "def build(config): ...\n"))
    assert told.startswith("Config must have fields of plain types such as int, float, bool or str")
    late = "from __future__ import annotations\n" + CONFIG.replace("int = 2", "Nowhere = None")
    told = message(write(late + "def build(config): ...\n", "late.py"))
    assert "Nowhere" in told


def test_a_syntax_error_is_told_by_line(write):
    told = message(write(CONFIG + "def build(config)\n    return 1\n"))
    assert told == "cannot be executed: line 6: expected ':'"


def test_an_error_at_import_is_told_by_line(write):
    told = message(write("import math\nx = 1 / 0\n"))
    assert told == "cannot be executed: line 2: ZeroDivisionError: division by zero"


def test_a_module_that_is_not_found_is_told_with_where_one_is_looked_for(write):
    write("WIDTH = 3\n", "ampsim_test_beside.py")
    told = message(write("import math\n\nfrom ampsim_test_beside import WIDTH\n"))
    assert told == (
        "cannot be executed: line 3: ModuleNotFoundError: No module named 'ampsim_test_beside'; "
        "name its folder in PYTHONPATH, or install it"
    )


def test_a_syntax_error_of_another_file_is_told_by_the_line_that_imports_it(
    write, tmp_path, monkeypatch
):
    monkeypatch.syspath_prepend(tmp_path)
    write("def broken(:\n", "ampsim_test_broken.py")
    told = message(write("import math\n\nimport ampsim_test_broken\n"))
    assert told.startswith("cannot be executed: line 3: SyntaxError: ")
    assert "ampsim_test_broken.py, line 1" in told


def test_an_option_whose_type_has_no_name_is_told_by_what_was_written(write):
    source = f"{CONFIG}    depth: int | None = None\n\ndef build(config): ...\n"
    config = execute(write(source), "mine.py", "").Config()
    assert [one.type for one in options_of(config)] == ["int", "int | None"]


def test_an_exception_in_build_is_told_by_the_last_line_of_the_file_itself(write):
    path = write(CONFIG + "\ndef build(config):\n    return int('a')\n")
    assert message(path) == (
        "build(config) failed: line 8: ValueError: invalid literal for int() with base 10: 'a'"
    )


def test_a_build_that_returns_something_else_is_told(write):
    path = write(CONFIG + "\ndef build(config):\n    return {}\n")
    assert message(path) == "build(config) must return an ampsim.Model, got dict"


GRAPH = """
import ampsim
from ampsim.ir import Graph
from ampsim.nodes import Linear, SoftmaxCrossEntropy
from ampsim.optim import sgd

def make(config):
    graph = Graph("mine")
    x, label = graph.controller(x=("rows", 4), label=("rows",))
    graph.end(SoftmaxCrossEntropy("loss"), graph.add(Linear("linear", 4, config.width), x), label)
    return graph

def build(config):
    return ampsim.Model("mine", config, lambda: make(config), print, print, sgd(0.1))
"""


@pytest.mark.parametrize(
    "raised", ["LookupError('a\\n b')", "SystemExit('bye')", "GeneratorExit", "AttributeError('x')"]
)
@pytest.mark.parametrize("where", ["import", "config", "build"])
def test_whatever_a_file_raises_is_one_line_with_its_own_line(write, where, raised):
    lines = {
        place: f"raise {raised}" if place == where else "pass" for place in ("import", "build")
    }
    lines["config"] = f"def __post_init__(self): raise {raised}" if where == "config" else "pass"
    text = (
        f"{CONFIG}    {lines['config']}\n{lines['import']}\ndef build(config): {lines['build']}\n"
    )
    line = {"config": 6, "import": 7, "build": 8}[where]
    assert re.search(rf": line {line}: {raised.partition('(')[0]}: ", message(write(text)))


def test_a_config_that_refuses_its_values_says_why_on_one_line(write):
    refusing = "    def __post_init__(self): raise ValueError('a\\n b')\ndef build(config): ...\n"
    assert message(write(CONFIG + refusing), OptionError).endswith("value error, a b, got {}")


def test_a_build_that_is_a_coroutine_leaves_no_warning_behind(write):
    told = message(write(CONFIG + "async def build(config): ...\n"))
    assert told == "build(config) must return an ampsim.Model, got coroutine"


def test_a_small_file_of_ones_own_is_a_model(write):
    model = load_model(write(CONFIG + GRAPH), width="3")
    assert model.parameters()["linear.weight"].shape == (4, 3)


def test_a_file_of_the_same_length_and_second_is_read_and_not_the_bytecode_of_the_other(
    write, monkeypatch
):
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    for width in (2, 3):
        path = write(CONFIG.replace("= 2", f"= {width}") + GRAPH)
        os.utime(path, (1e9, 1e9))
        assert load_model(path).parameters()["linear.weight"].shape == (4, width)


def test_an_exception_while_the_graph_is_built_is_told_by_line(write):
    path = write(CONFIG + GRAPH.replace("return graph", "return graph.nothing"))
    assert message(path, GraphError) == (
        "make_graph of model mine failed: AttributeError: "
        f"'Graph' object has no attribute 'nothing' ({path}, line 16)"
    )


def test_a_graph_that_breaks_a_rule_keeps_its_own_words(write):
    path = write(CONFIG + GRAPH.replace('("rows", 4)', '("rows", 5)'))
    assert message(path, GraphError) == (
        "mine: linear (Linear) expects (rows, 4), got (rows, 5) (fed by controller)"
    )
    path = write(CONFIG + GRAPH, "other.py")
    assert message(path, GraphError, width=0) == "linear: widths must be >= 1, got d_in=4, d_out=0"
    path = write("from ampsim.errors import GraphError\nraise GraphError('own words')", "own.py")
    assert message(path, GraphError) == "own words"
