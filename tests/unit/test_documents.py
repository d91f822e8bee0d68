"""What the pages in `docs/` name exists: files, classes and functions, columns, and links."""

from __future__ import annotations

import ast
import csv
import dataclasses
import importlib
import re
import sys
import tomllib
from collections import Counter
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from types import FrameType, ModuleType
from typing import Any

import pytest
from pydantic.fields import FieldInfo

import ampsim
from ampsim.cli.option_table import TABLE
from ampsim.data_parallel import SOLVERS
from ampsim.dataflow import PROGRAMS
from ampsim.errors import AmpsimError
from ampsim.forecasting.tuning import COLUMNS as TRIAL_COLUMNS
from ampsim.hardware import (
    Checkpoints,
    Device,
    Edge,
    Event,
    Failures,
    HostPorts,
    Level,
    Link,
    Messages,
    Ports,
    Topology,
)
from ampsim.hardware.device import NUMBERS, Key
from ampsim.hardware.load import _ClusterFile, _DeviceEntry, _RouteEntry
from ampsim.ir import Node
from ampsim.model_parallel import SCHEDULES, needs_chain
from ampsim.runs.folder import SCHEMAS
from ampsim.study import Simulation
from ampsim.study.result import Result
from ampsim.study.schedule_names import option_types

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted([*(ROOT / "docs").rglob("*.md"), *ROOT.glob("*.md"), ROOT / "reports" / "README.md"])
GLOSSARY = ROOT / "docs" / "glossary.md"
ONE_MESSAGE = ROOT / "docs" / "one-message.md"
API = ROOT / "docs" / "api.md"
VALIDATION = ROOT / "docs" / "validation.md"
HARDWARE = ROOT / "docs" / "own-device-and-cluster.md"
OF_OTHERS = {
    "--cpus-per-task", "--mem-per-cpu", "--memory-limit", "--ntasks", "--nthreads", "--overlap",
    "--scheduler-file", "--time", "--keep-going", "--porcelain", "--untracked-files",
    "--dist",
}  # fmt: skip
"""Options of Slurm, Dask, Sphinx, Git and pytest."""


def quoted(text: str) -> list[str]:
    """All that stands between single backticks."""
    return re.findall(r"`([^`\n]+)`", re.sub(r"```.*?```", "", text, flags=re.DOTALL))


def rows(path: Path, *, until: str = "\0") -> list[list[str]]:
    """Cells of all tables of a page, or of those before a heading, without their own headings."""
    text = path.read_text("utf-8").partition(until)[0]
    lines = [line for line in text.splitlines() if line.startswith("| ")]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    headings = ("", "term", "module", "what", "package", "schedule")
    return [line for line in cells if line[0] not in headings]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_links_and_files_that_a_page_names_are_there(page):
    text = page.read_text("utf-8")
    for target in re.findall(r"\]\(([^)#\s]+)", text):
        if not re.match(r"[a-z]+:", target):
            assert (page.parent / target).exists(), target
    for name in quoted(text):
        is_path = re.fullmatch(r"(ampsim|tests|docs|models|devices)/[\w./-]+", name)
        if is_path and "/_shipped/" not in name:  # which is in the wheel only
            assert (ROOT / name).exists(), name


def resolve(name: str) -> Any:
    """What a dotted name of the glossary stands for."""
    if name.startswith("ampsim."):
        module, _, last = name.rpartition(".")
        return getattr(importlib.import_module(module), last)
    first, _, last = name.partition(".")
    owner = {"Node": Node, "Result": Result}.get(first) or getattr(ampsim, first)
    return getattr(owner, last) if hasattr(owner, last) else owner.__dataclass_fields__[last]


def table(report: str, file: str) -> list[dict[str, str]]:
    with open(ROOT / "reports" / report / file, newline="") as opened:
        return list(csv.DictReader(opened))


def test_ratios_in_texts_of_reports_are_those_of_their_tables():
    times = {
        row["schedule"]: float(row["time_ratio"]) for row in table("solvers-ranking", "report.csv")
    }
    behind = [f"{100 * (times[name] - 1):.0f}" for name in ("Parameter Server", "Hogwild!")]
    page = (ROOT / "reports" / "solvers-ranking" / "report.md").read_text("utf-8")
    assert f"the Parameter Server and Hogwild! by {' and '.join(behind)} %" in page
    most = max(
        float(row["slowdown"])
        for file in ("times.csv", "by_length.csv")
        for row in table("dynamic-or-static", file)
    )
    readme = (ROOT / "reports" / "README.md").read_text("utf-8")
    assert f"a loop takes up to {most:.1f} times as long as its unrolled" in readme


def span_of(row: dict[str, str]) -> str:
    """The median time to the target of a row, and its interval, as pages say them."""
    middle, low, high = (
        1e3 * float(row[f"time_to_target_{end}s"]) for end in ("", "low_", "high_")
    )
    return f"{middle:.0f} ms ({low:.0f} to {high:.0f})"


def quoted_numbers() -> Iterator[tuple[str, str]]:
    """Pages, and what each must say by the tables of the reports that it speaks of."""
    momentum = "docs/staleness-and-momentum.md"
    yield from ((momentum, span_of(row)) for row in table("staleness-momentum", "report.csv"))
    implied = table("delayed-descent", "implied.csv")
    two, four = (
        " or ".join(f"{float(row['momentum']):.2f}" for row in implied
                    if float(row["jitter"]) == 2 and row["ranks"] == ranks)
        for ranks in ("2", "4")
    )  # fmt: skip
    yield momentum, f"a momentum of {two} fits two of them, of {four} four"
    missed = max(float(row["missed"]) for row in implied)
    yield "reports/delayed-descent/report.md", f"misses up to {missed:.2f} of a step"
    (sync,) = (row for row in table("one-table", "report.csv") if row["schedule"][:7] == "SyncSGD")
    said = f"in the median {float(sync['time_ratio']):.2f} times as soon as Sync SGD on eight"
    yield "reports/one-table/report.md", said
    best = {
        (row["schedule"], row["repeat"]): float(row["accuracy"])
        for row in sorted(table("solvers-mnist", "epochs.csv"), key=lambda row: row["accuracy"])
        if row["schedule"].startswith("sync")
    }
    of_seeds = [[best[name, seed] for name, of in best if of == seed] for seed in ("1", "2", "3")]
    most = max(max(of_seed) - min(of_seed) for of_seed in of_seeds)
    yield "reports/solvers-mnist/report.md", f"its best by as much as {100 * most:.2f} points"


@pytest.mark.parametrize(("page", "said"), [*quoted_numbers()])
def test_numbers_of_a_page_are_those_of_the_reports_that_it_speaks_of(page, said):
    assert said in " ".join((ROOT / page).read_text("utf-8").replace("**", "").split())


def test_every_option_that_a_page_or_a_message_names_is_one():
    """But for those of other programs, and in `mistakes.py`, which knows what is typed wrongly."""
    every = [pair for of_heading in TABLE.values() for pair in of_heading.items()]
    known = {one for _key, option in every for name in option.names for one in name.split("/")}
    known |= {key.rpartition(".")[2].rstrip("_") for key, _option in every} | {*option_types()}
    known = {f"--{one.lstrip('-').replace('_', '-')}" for one in known}
    known |= {"--help", "--version", "--install-completion"} | OF_OTHERS
    known |= {one.replace("--", "--no-", 1) for one in known}
    texts = [*(ROOT / "docs").glob("*.md"), ROOT / "README.md", *(ROOT / "ampsim").rglob("*.py")]
    found = {
        option: str(path) for path in texts if path.name != "mistakes.py"
        for option in re.findall(r"(?<![\w-])--[a-z][a-z-]*[a-z]", path.read_text("utf-8"))
    }  # fmt: skip
    assert {option: path for option, path in found.items() if option not in known} == {}
    assert len(found) > 50


def test_every_name_of_the_glossary_exists():
    named = 0
    for _term, _meaning, code, _column in rows(GLOSSARY):
        for name in quoted(code):
            if "/" in name or "=" in name or "." not in name:
                continue
            resolve(name)
            named += 1
    assert named > 20


def test_every_column_of_the_glossary_is_one_of_a_table():
    forecast = ampsim.forecast("rnn", "tflops-1", "amp", instances=200, mode="sleep").table
    known = {f"{table}.{column}" for table, schema in SCHEMAS.items() for column in schema}
    known |= {*forecast.columns, "critical_path.kind", "controller"}
    columns = [name for *_others, column in rows(GLOSSARY) for name in quoted(column)]
    assert len(columns) > 25
    tables = {*SCHEMAS, "_s"}
    assert [name for name in columns if name not in known | tables] == []


def test_what_the_way_of_a_message_names_is_in_the_files_that_it_names():
    """A name in backticks, such as `send`, is defined there."""
    names = quoted(ONE_MESSAGE.read_text("utf-8"))
    defined = {name for file in names if "/" in file for name in definitions(ROOT / file)}
    others = [name for name in names if "/" not in name]
    assert len(others) > 15
    assert set(others) <= defined


FUNCTIONS_OF_A_MESSAGE_MAX = 13
FILES_OF_A_MESSAGE_MAX = 6


def calls_of(run: Callable[[], Any]) -> list[tuple[str, str]]:
    """(function, file) of each call in the package, but for those in clock and trace."""
    package = Path(ampsim.__file__).parent
    called: list[tuple[str, str]] = []

    @cache
    def file_of(name: str) -> str | None:
        path = Path(name)
        if not path.is_relative_to(package) or path.parent.name in ("clock", "trace"):
            return None
        return f"ampsim/{path.relative_to(package).as_posix()}"

    def note(frame: FrameType, event: str, _argument: object) -> None:
        if event == "call" and (file := file_of(frame.f_code.co_filename)) is not None:
            called.append((frame.f_code.co_qualname, file))

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        run()
    finally:
        sys.setprofile(before)
    return called


def test_a_message_takes_the_functions_that_its_page_lists_and_no_other():
    listed: list[tuple[str, str]] = []
    for number, function, file, _what in rows(ONE_MESSAGE):
        assert int(number) == len(listed) + 1
        listed.append((".".join(reversed(quoted(function))), quoted(file)[0]))
    assert len(listed) <= FUNCTIONS_OF_A_MESSAGE_MAX
    assert len({file for _function, file in listed}) <= FILES_OF_A_MESSAGE_MAX
    model = ampsim.load_model("mlp", data="synthetic", hidden=16, batch=10)
    cluster = ampsim.load_cluster("tflops-1", workers=4)
    one = Simulation(model, cluster, ampsim.Amp(max_active_keys=1), counts_memory=False)
    called = calls_of(lambda: one._training.train(one._batches("train")))
    walks = [
        tuple(dict.fromkeys(called[_last("send", called, place) : place + 1]))
        for place, (function, _file) in enumerate(called)
        if function == "Worker.send_on"
    ]
    of_linear = [walk for walk in walks if ("Linear.forward", "ampsim/nodes/linear.py") in walk]
    assert Counter(of_linear).most_common(1)[0][0] == tuple(listed)


def _last(name: str, called: list[tuple[str, str]], before: int) -> int:
    """The place of the last call of a function of this name."""
    return next((place for place in range(before, 0, -1) if called[place][0] == name), 0)


def described(page: Path) -> set[str]:
    """Names of a module that its page describes; all public ones, unless it lists some."""
    text = page.read_text("utf-8")
    (name,) = re.findall(r"^\.\. automodule:: (\S+)$", text, re.MULTILINE)
    assert name == page.stem
    listed = re.findall(r"^ +:members: (.+)$", text, re.MULTILINE)
    left_out = set(", ".join(re.findall(r":exclude-members: (.+)", text)).split(", "))
    names = listed[0].split(", ") if listed else public(importlib.import_module(name))
    return {f"{name}.{one}" for one in names} - {f"{name}.{one}" for one in left_out}


def public(module: ModuleType) -> list[str]:
    """What a module says is public, or without a word what is defined there."""
    own = [name for name, value in vars(module).items() if is_of(value, module)]
    return getattr(module, "__all__", own)


def is_of(value: Any, module: ModuleType) -> bool:
    name = getattr(value, "__name__", "_")
    return getattr(value, "__module__", None) == module.__name__ and not name.startswith("_")


def test_every_public_module_has_its_page_in_the_reference():
    listed = [quoted(line[0].partition("]")[0])[0] for line in rows(API)]
    assert sorted(listed) == sorted(page.stem for page in (ROOT / "docs" / "api").glob("*.rst"))
    assert {name for name in ampsim.__all__ if isinstance(getattr(ampsim, name), ModuleType)} <= {
        name.removeprefix("ampsim.") for name in listed
    }


def test_every_public_name_is_described_in_the_reference():
    names = {name for page in (ROOT / "docs" / "api").glob("*.rst") for name in described(page)}
    things = [resolve(name) for name in names]
    missing = [
        name
        for name in ampsim.__all__
        if not isinstance(getattr(ampsim, name), ModuleType)
        and not any(getattr(ampsim, name) is thing for thing in things)
    ]
    assert missing == []


def test_the_reference_names_every_column_of_the_trials_of_a_forecast():
    told = str(ampsim.Forecast.__doc__).partition(" trials: ")[2].partition(" lost: ")[0]
    assert {*TRIAL_COLUMNS, "setting", "optimizer"} <= set(re.findall(r"\w+", told))


def keys_and_defaults(heading: str) -> dict[str, str]:
    """The keys of a section's tables, and what holds without them, as the page says."""
    text = HARDWARE.read_text("utf-8")
    section = text.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    found: dict[str, str] = {}
    for table in re.findall(r"(?:^\|.*\n)+", section, re.MULTILINE):
        headings, _line, *lines = [
            [cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()
        ]
        for line in lines:
            cells = dict(zip(headings, line, strict=True))
            found[quoted(cells["key"])[0]] = cells["without it"]
    return found


def test_the_page_on_devices_has_every_key_and_says_which_are_needed():
    told = keys_and_defaults("A device")
    assert told.keys() == Device.model_fields.keys()
    for key in NUMBERS:
        is_needed = Device.model_fields[key].is_required()
        assert (told[key] == "needed") == is_needed, key


UNITS = {
    "flop_per_s": "FLOP/s", "functions_per_s": "1/s", "bytes_per_s": "bytes/s", "_s": "s",
    "usd_per_h": "USD/h", "_bytes": "bytes", "_w": "W",
}  # fmt: skip
"""Units by the end of a key's name, the longest first."""


def row_of_key(name: str, field: FieldInfo) -> str:
    """The row that the page has of a key of a device, by its one declaration."""
    (key,) = (one for one in field.metadata if isinstance(one, Key))
    unit = key.unit or next((unit for end, unit in UNITS.items() if name.endswith(end)), "")
    absent = key.absent or ("needed" if field.is_required() else f"{field.default:g}")
    return f"| `{name}` |{f' {unit}' * bool(unit)} | {absent} | {key.text} |"


def test_the_page_on_devices_says_of_each_key_what_its_declaration_says():
    rows = [row_of_key(name, field) for name, field in Device.model_fields.items()]
    text = HARDWARE.read_text("utf-8")
    missing = [row for row in rows if f"\n{row}\n" not in text]
    assert not missing, "\n".join(["docs/own-device-and-cluster.md lacks", *missing])


def test_the_page_on_clusters_has_every_key():
    told = keys_and_defaults("A cluster")
    records = (_ClusterFile, _DeviceEntry, _RouteEntry, Link)
    fields = [(name, field) for record in records for name, field in record.model_fields.items()]
    assert told.keys() == {field.alias or name for name, field in fields}
    for name, field in fields:
        if field.is_required() and name != "name":  # which the file's name stands for
            assert told[field.alias or name].startswith("needed"), name


def test_the_page_on_events_has_every_key():
    told = keys_and_defaults("Events, failures and messages")
    records = (Event, Failures, Checkpoints, Messages)
    fields = [(name, field) for record in records for name, field in record.model_fields.items()]
    assert told.keys() == {name for name, _field in fields}
    for name, field in fields:
        if field.is_required():
            assert told[name].startswith("needed"), name


def test_the_page_on_edges_and_ports_has_every_key():
    told = keys_and_defaults("Edges and ports")
    records = (Topology, Level, Edge, Ports, HostPorts)
    fields = [(name, field) for record in records for name, field in record.model_fields.items()]
    assert told.keys() == {name for name, _field in fields}
    for name, field in fields:
        if field.is_required():
            assert told[name].startswith("needed"), name


def numbers_of(path: Path) -> set[float]:
    """Numbers that a file of Python writes out."""
    nodes = ast.walk(ast.parse(path.read_text("utf-8")))
    values = [node.value for node in nodes if isinstance(node, ast.Constant)]
    return {value for value in values if isinstance(value, float)}


def test_each_line_of_agreement_names_a_test_that_demands_as_much():
    """A tolerance of the page is one of the file, "within 2 %" as 0.02 or 1.02."""
    lines = rows(VALIDATION, until="\n## ")  # the rest is beside papers
    assert len(lines) >= 13
    for what, _against, agreement, tests in lines:
        (name,) = quoted(tests)
        assert name.startswith("tests/"), what
        assert any(one.startswith("test_") for one in definitions(ROOT / name)), name
        told = re.findall(r"(\d[\d.e-]*)( %)?", agreement)
        assert told or "every bit" in agreement, what
        for number, percent in told:
            value = float(number) / 100 if percent else float(number)
            assert {value, 1 + value} & numbers_of(ROOT / name), (what, number)


def test_the_page_on_schedules_has_all_with_their_options_and_says_which_need_a_chain():
    lines = rows(ROOT / "docs" / "schedules.md")
    options_from = next(i for i, (_, words) in enumerate(lines) if words.startswith("`--"))
    described = [name for line in lines[:options_from] for name in quoted(line[0])]
    with_options = [name for line in lines[options_from:] for name in quoted(line[0])]
    assert sorted(described) == sorted(SCHEDULES)
    options: dict[str, list[str]] = {}
    for names, words in lines[options_from:]:
        for name in quoted(names):
            found = [one for word in quoted(words) for one in options.get(word, [word])]
            options[name] = [one.removeprefix("--").replace("-", "_") for one in found]
    assert list(options) == with_options
    for name, schedule in {**SCHEDULES, **PROGRAMS}.items():
        fields = {field.name for field in dataclasses.fields(schedule)}
        assert set(options.get(name, [])) == fields, name
    text = (ROOT / "docs" / "schedules.md").read_text("utf-8")
    (exempt,) = re.findall(r"^All but (.*?) need a chain", text, re.MULTILINE | re.DOTALL)
    are_free = {name for name, schedule in SCHEDULES.items() if not needs_chain(schedule())}
    assert set(quoted(exempt)) == are_free
    (solvers,) = re.findall(r"^Solvers train(.*?)\(\[what each", text, re.MULTILINE | re.DOTALL)
    assert sorted(quoted(solvers)) == sorted(SOLVERS)


def test_each_decision_has_a_number_of_its_own():
    pages = sorted((ROOT / "docs" / "decisions").glob("*.md"))
    assert [int(page.name[:4]) for page in pages] == list(range(1, len(pages) + 1))
    for page in pages:
        assert page.read_text("utf-8").startswith(f"# {int(page.name[:4])}. "), page.name


def test_a_forecast_that_a_decision_quotes_says_how_much_is_run():
    """With a budget it tunes, and its numbers are not those of one run of each row."""
    text = "".join(page.read_text("utf-8") for page in (ROOT / "docs" / "decisions").glob("*.md"))
    quoted_here = re.findall(r"`(ampsim forecast \w+ --[^`]+)`", text)
    said = re.compile(r"--(quick|repeats|budget|mode sleep)\b")
    assert quoted_here
    assert [command for command in quoted_here if not said.search(command)] == []


def test_every_report_is_listed_on_their_page():
    text = (ROOT / "reports" / "README.md").read_text("utf-8")
    reports = {page.parent.name for page in (ROOT / "reports").glob("*/report.md")}
    assert reports == set(re.findall(r"\]\(([\w-]+)/report\.md\)", text))


def test_each_ratio_with_its_interval_is_one_of_a_report_that_its_section_links():
    """A claim such as "1.16 times (1.04 to 1.26)"; its three numbers stand in one report."""
    ratio = r"(\d+\.\d+)(?:\s+times)?\s+\((\d+\.\d+)\s+to\s+(\d+\.\d+)"
    found = {}
    for page in PAGES:
        for section in page.read_text("utf-8").split("\n#"):
            linked = re.findall(r"\(([^()]*report\.md)\)", section)
            texts = [(page.parent / one).read_text("utf-8") for one in linked]
            numbers = [set(re.findall(r"\d+\.\d+", text)) for text in texts]
            for claim in re.findall(ratio, section) if linked else ():
                found[claim] = any(those.issuperset(claim) for those in numbers)
    assert len(found) >= 6
    assert [claim for claim, is_there in found.items() if not is_there] == []


def test_contributing_lists_the_packages_from_the_highest_layer_to_the_lowest():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    (contract,) = (one for one in project["tool"]["importlinter"]["contracts"] if "layers" in one)
    layers = [line.split(" | ") for line in contract["layers"]]
    packages = [
        name
        for line in layers
        for name in line
        if (ROOT / "ampsim" / name / "__init__.py").exists()
    ]
    listed = [quoted(line[0]) for line in rows(ROOT / "CONTRIBUTING.md")]
    assert [name for names in listed for name in names] == packages


def definitions(path: Path) -> set[str]:
    """Names of the functions and classes of a file, or of all files of a folder."""
    files = [path] if path.is_file() else sorted(path.glob("*.py"))
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    return {
        node.name
        for file in files
        for node in ast.walk(ast.parse(file.read_text("utf-8")))
        if isinstance(node, kinds)
    }


def test_the_search_for_names_would_find_a_wrong_one():
    assert "Fabric" in definitions(ROOT / "ampsim" / "machine" / "fabric.py")
    assert "Fabrics" not in definitions(ROOT / "ampsim" / "machine" / "fabric.py")
    with pytest.raises(AttributeError):
        resolve("ampsim.trace.critical_paths")
    assert issubclass(resolve("ampsim.errors.OptionError"), AmpsimError)


def test_the_pages_and_the_skipped_tests_name_the_same_pytorch():
    told = [ROOT / "tests" / "oracle" / "torch_oracle.py", ROOT / "CONTRIBUTING.md"]
    told.append(ROOT / ".ci" / "run")
    versions = [re.findall(r"\btorch==[\d.]+\d", path.read_text("utf-8")) for path in told]
    assert all(len(found) == 1 for found in versions)
    assert len({found[0] for found in versions}) == 1
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    extras = project["optional-dependencies"]
    own = extras.pop("torch")  # for who imports models from it; no other extra brings it
    assert [name.partition(">")[0] for name in own] == ["torch"]
    assert own[0].partition(">=")[2] in next(iter(versions[0]))
    assert not [name for names in extras.values() for name in names if name.startswith("torch")]
