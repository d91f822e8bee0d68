"""What `import ampsim` offers, and what it does not cost."""

import subprocess
import sys
from pathlib import Path

import pytest

import ampsim
from ampsim.data_parallel import SOLVERS

PAGE = Path(__file__).resolve().parents[2] / "docs" / "solvers.md"
HEAVY = "{'pandas', 'matplotlib', 'numpy', 'simpy', 'pydantic', 'networkx'}"


def test_importing_ampsim_imports_nothing_heavy():
    code = f"import ampsim, sys; print(sorted({HEAVY} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_every_public_name_is_there():
    assert ampsim.__all__ == sorted(ampsim.__all__, key=lambda name: (name[0].islower(), name))
    for name in ampsim.__all__:
        assert getattr(ampsim, name).__name__.rpartition(".")[2] == name


def test_a_name_that_is_not_there_is_an_attribute_error():
    with pytest.raises(AttributeError, match=r"^No ampsim attribute simulation$"):
        _ = ampsim.simulation  # pyright: ignore[reportAttributeAccessIssue]  # that is the test


def test_version_is_text():
    assert ampsim.__version__[0].isdigit()


@pytest.mark.parametrize("kind", SOLVERS.values(), ids=list(SOLVERS))
def test_every_solver_of_the_registry_is_a_public_name_and_on_its_page(kind):
    assert kind.__name__ in ampsim.__all__, "name it in ampsim/__init__.pyi"
    assert getattr(ampsim, kind.__name__) is kind
    assert f"| `{kind.__name__}` |" in PAGE.read_text("utf-8"), "give it a row in docs/solvers.md"
