"""How ampsim is written, checked; the limits only ever tighten.

Source: the house style; TigerBeetle's `src/tidy.zig` for the idea.
"""

import ast
import importlib.util
import re
import tokenize
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
HERE = Path(__file__).resolve()


def files(*patterns: str) -> list[Path]:
    return sorted(path for pattern in patterns for path in ROOT.glob(pattern) if path.is_file())


PACKAGE = files("ampsim/**/*.py")
CODE = [*PACKAGE, *files("models/*.py")]
SCRIPTS = files("benchmarks/**/*.py", "notebooks/*.py", "reports/**/*.py", ".ci/*.py")
TESTS = [path for path in files("tests/**/*.py") if path != HERE]
PAGES = files(
    "*.md",
    "*.toml",
    "docs/**/*.md",
    "devices/*.toml",
    "notebooks/*.md",
    "reports/**/*.md",
    "reports/**/*.toml",
    ".ci/*",
)

MODULE_LINES_MAX = 600
FUNCTION_LINES_MAX = 40
PARAMETERS_MAX = 5

# A file is an idea, and its functions stay short; it is never cut to stay under a limit. A module
# over it stands here with its length and, in a comment, the reason.
LONG_MODULES: dict[str, int] = {}

# Class names that still mean two things. The list only gets shorter.
DOUBLE_NAMES = {
    "Charge", "Controller", "Node", "Route",
}  # fmt: skip

WITH_WALL_CLOCK = {"__init__", "cli", "clock", "report", "runs", "calibration", "exploring"}

# Assignments to an attribute of another object than `self`, by package. A method of that object,
# or an argument when it is made, says what it is for; where state is shared by design, as that of
# a transfer under way, it counts here. An entry is the number of today, and only falls.
ASSIGNED_ELSEWHERE = {"machine": 33, "model_parallel": 25, "dependency": 46, "data_parallel": 8}

# Files and lines of the packages around the core, which grew as fast as the features that they
# show. A number is that of today, of lines rounded up to fifty, and only falls.
AROUND_MAX = {
    "calibration": (6, 1550), "cli": (21, 4350), "exploring": (15, 4100), "forecasting": (8, 2700),
    "interop": (13, 3550), "recipes": (10, 2800), "report": (32, 6550), "runs": (14, 3800),
    "study": (20, 4850),
}  # fmt: skip

FOREIGN = {
    "an unfinished thought": r"\b(TODO|FIXME|XXX|HACK)\b",
    "a path of one machine": r"(?<![\w.$}])/(work|root|home|tmp|Users)/",
    "the address of a package index": r"pypi\.org|pythonhosted|download\.pytorch|index-url",
}

# How a docstring begins that leaves its subject to whoever reads on: "The same in one place."
WITHOUT_SUBJECT = re.compile(
    r"(As (of|given|chosen|told|`)|Those |That of |All do|None (comes|of|for|has)|So many |Whom "
    r"|What came of|What (it says\b|decides\.)|The same(\.|,|;| (as|at|for|in|of|to|with)\b))"
)

IGNORE = re.compile(r"#\s*(?:noqa|pyright:\s*ignore|type:\s*ignore)(?::?\s*[\w,\[\] ]*)")
NO_CODE = (
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENDMARKER,
)

Function = ast.FunctionDef | ast.AsyncFunctionDef


@cache
def text_of(path: Path) -> str:
    return path.read_text(encoding="utf-8")


@cache
def parse(path: Path) -> ast.Module:
    return ast.parse(text_of(path), filename=str(path))


@cache
def nodes(path: Path) -> tuple[ast.AST, ...]:
    return tuple(ast.walk(parse(path)))


@cache
def functions(path: Path) -> tuple[Function, ...]:
    return tuple(node for node in nodes(path) if isinstance(node, Function))


def expect_none(paths: Iterable[Path], find: Callable[[Path], Iterable[str]]) -> None:
    """Fails with one line for each thing that `find` finds in a file."""
    lines = [
        f"{path.relative_to(ROOT).as_posix()}: {what}" for path in paths for what in find(path)
    ]
    if lines:
        pytest.fail("\n".join(lines), pytrace=False)


def length(path: Path, node: Function) -> int:
    """Lines of code in the body: no docstring, no comment, no blank line."""
    body = node.body[1:] if ast.get_docstring(node) is not None else node.body
    if not body:
        return 0
    lines = text_of(path).splitlines(keepends=True)[body[0].lineno - 1 : node.end_lineno]
    tokens = tokenize.generate_tokens(iter(lines).__next__)
    spans = ((one.start[0], one.end[0]) for one in tokens if one.type not in NO_CODE)
    return len({number for first, last in spans for number in range(first, last + 1)})


def public(tree: ast.Module | ast.ClassDef) -> Iterator[ast.ClassDef | Function]:
    """Public classes, functions and methods; what is inside a function is its own affair."""
    for node in tree.body:
        if isinstance(node, ast.ClassDef | Function) and not node.name.startswith("_"):
            decorators = {ast.unparse(one) for one in node.decorator_list}
            if isinstance(node, ast.ClassDef):
                yield from public(node)
            if not any(one.endswith((".setter", "overload")) for one in decorators):
                yield node


def test_there_is_something_to_check():
    assert len(PACKAGE) > 20
    assert len(TESTS) > 10
    assert len(PAGES) > 5


def test_modules_are_short_enough_to_be_one_idea():
    def find(path: Path) -> Iterator[str]:
        name, count = path.relative_to(ROOT).as_posix(), text_of(path).count("\n")
        if count > LONG_MODULES.get(name, MODULE_LINES_MAX):
            yield f"{count} lines; split it"
        if name in LONG_MODULES and not MODULE_LINES_MAX < count == LONG_MODULES[name]:
            yield f"{count} lines; tighten its entry in LONG_MODULES"

    expect_none(CODE + SCRIPTS + TESTS, find)


@pytest.mark.slow
def test_functions_are_short_enough_to_read_at_once():
    def find(path: Path) -> Iterator[str]:
        for node in functions(path):
            if (node.end_lineno or 0) - node.lineno < FUNCTION_LINES_MAX:
                continue
            if (count := length(path, node)) > FUNCTION_LINES_MAX:
                yield f"{node.name} has {count} lines of code"

    expect_none(CODE + SCRIPTS + TESTS, find)


def test_functions_take_few_parameters_by_position():
    def find(path: Path) -> Iterator[str]:
        for node in functions(path):
            names = [one.arg for one in node.args.posonlyargs + node.args.args]
            if len(set(names) - {"self", "cls"}) > PARAMETERS_MAX:
                yield f"{node.name} takes {names}; use a record"

    expect_none(CODE + SCRIPTS + TESTS, find)


def test_everything_public_is_documented():
    def find(path: Path) -> Iterator[str]:
        if not ast.get_docstring(parse(path)):
            yield "the module has no docstring"
        bare = (one.name for one in public(parse(path)) if not ast.get_docstring(one))
        yield from (f"{name} has no docstring" for name in bare)

    expect_none(CODE, find)


def test_a_docstring_names_its_subject():
    def find(path: Path) -> Iterator[str]:
        for node in nodes(path):
            is_one = isinstance(node, ast.ClassDef | Function)
            if is_one and WITHOUT_SUBJECT.match(text := ast.get_docstring(node) or ""):
                yield f"{node.lineno}: {text.splitlines()[0]}"

    expect_none(PACKAGE, find)


def test_annotations_are_not_evaluated_at_import():
    def find(path: Path) -> Iterator[str]:
        imports = [one.module for one in parse(path).body if isinstance(one, ast.ImportFrom)]
        if any(functions(path)) and "__future__" not in imports:
            yield "lacks: from __future__ import annotations"

    expect_none(CODE, find)


def test_a_class_name_means_one_thing():
    found: dict[str, int] = {}
    for path in PACKAGE:
        for node in nodes(path):
            if isinstance(node, ast.ClassDef):
                found[node.name] = found.get(node.name, 0) + 1
    assert {name for name, count in found.items() if count > 1} == DOUBLE_NAMES


def test_every_folder_of_the_package_is_a_package():
    folders = {path.parent for path in PACKAGE}
    assert not [folder for folder in sorted(folders) if not (folder / "__init__.py").is_file()]


def test_init_of_a_subpackage_only_reexports():
    def is_reexport(node: ast.stmt) -> bool:
        if isinstance(node, ast.Assign):
            return ast.unparse(node.targets[0]) == "__all__"
        if isinstance(node, ast.AugAssign):  # by what a registry lists
            return ast.unparse(node.target) == "__all__"
        is_docstring = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        return is_docstring or isinstance(node, ast.Import | ast.ImportFrom)

    def find(path: Path) -> Iterator[str]:
        yield from (ast.unparse(one)[:40] for one in parse(path).body if not is_reexport(one))

    # The package's own resolves its names lazily, so that --help is fast.
    inner = [path for path in PACKAGE if path.name == "__init__.py" and path.parent.parent != ROOT]
    expect_none(inner, find)


def attributes_of_others(tree: ast.AST) -> Iterator[ast.Attribute]:
    """What is assigned to an attribute of another object than `self`."""
    attributes = (node for node in ast.walk(tree) if isinstance(node, ast.Attribute))
    for node in attributes:
        if isinstance(node.ctx, ast.Store) and ast.unparse(node.value) != "self":
            yield node


@pytest.mark.parametrize("package", ASSIGNED_ELSEWHERE)
def test_objects_of_the_core_are_changed_by_their_own_methods(package):
    found = [
        f"{path.relative_to(ROOT).as_posix()}:{target.lineno}: {ast.unparse(target)}"
        for path in files(f"ampsim/{package}/**/*.py")
        for target in attributes_of_others(parse(path))
    ]
    most = ASSIGNED_ELSEWHERE[package]
    if len(found) > most:
        pytest.fail(
            "\n".join([f"{len(found)} assignments, {most} at most:", *found]), pytrace=False
        )
    assert len(found) == most, "tighten its entry in ASSIGNED_ELSEWHERE"


@pytest.mark.parametrize("package", AROUND_MAX)
def test_what_stands_around_the_core_does_not_grow(package):
    paths = files(f"ampsim/{package}/**/*.py")
    size = len(paths), sum(text_of(path).count("\n") for path in paths)
    most = AROUND_MAX[package]
    assert size[0] <= most[0]
    assert size[1] <= most[1]
    assert (size[0], -(-size[1] // 50) * 50) == most, "tighten its entry in AROUND_MAX"


def test_no_name_leaves_open_whether_it_is_a_count_or_a_rate():
    def find(path: Path) -> Iterator[str]:
        for node in nodes(path):
            for field in ("id", "attr", "arg", "name", "asname"):
                value = getattr(node, field, None)
                if isinstance(value, str) and "flops" in value.lower():
                    yield f"{value}; write flop or flop_per_s"

    expect_none(CODE + SCRIPTS + TESTS, find)


def test_paths_are_asked_for_in_a_way_that_never_raises():
    def find(path: Path) -> Iterator[str]:
        for node in nodes(path):
            if not isinstance(node, ast.Attribute) or ast.unparse(node.value) == "os.path":
                continue
            if node.attr in ("is_file", "is_dir", "exists"):
                yield f"{node.lineno}: .{node.attr} raises for a name that is too long"

    expect_none(PACKAGE, find)


def test_nothing_below_the_study_reads_the_wall_clock_except_the_clock():
    def find(path: Path) -> Iterator[str]:
        for node in nodes(path):
            if isinstance(node, ast.Import):
                yield from (one.name for one in node.names if one.name in ("time", "datetime"))
            if isinstance(node, ast.ImportFrom) and node.module in ("time", "datetime"):
                yield node.module

    parts = ((path, path.relative_to(ROOT / "ampsim").parts[0]) for path in PACKAGE)
    below = [path for path, part in parts if part.removesuffix(".py") not in WITH_WALL_CLOCK]
    expect_none(below, find)


@pytest.mark.parametrize("what", FOREIGN)
def test_no_text_holds(what):
    pattern = re.compile(FOREIGN[what])

    def find(path: Path) -> Iterator[str]:
        lines = enumerate(text_of(path).splitlines(), 1)
        yield from (f"{number}: {line.strip()}" for number, line in lines if pattern.search(line))

    expect_none(CODE + SCRIPTS + TESTS + PAGES, find)


def test_an_ignore_carries_its_reason_on_the_same_line():
    def find(path: Path) -> Iterator[str]:
        for number, line in enumerate(text_of(path).splitlines(), 1):
            match = IGNORE.search(line)
            if match and not re.search(r"\w{3}", line[match.end() :]):
                yield f"{number}: {line.strip()}"

    expect_none(CODE + SCRIPTS + TESTS, find)


def test_every_planted_fault_still_has_its_line_and_its_tests():
    spec = importlib.util.spec_from_file_location(
        "planted_faults", ROOT / "tests" / "robustness" / "planted_faults.py"
    )
    assert spec is not None
    assert spec.loader is not None
    planted = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(planted)
    lost = [
        name
        for name, fault in planted.FAULTS.items()
        if (ROOT / "ampsim" / fault.file).read_text(encoding="utf-8").count(fault.right) != 1
        or not all((ROOT / "tests" / one).exists() for one in fault.tests)
    ]
    assert lost == []
