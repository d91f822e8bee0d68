"""Every example in a docstring gives what it says."""

import doctest
import importlib.util
import inspect
import pkgutil
import types
from pathlib import Path

import pytest

import ampsim

MODULES = sorted(module.name for module in pkgutil.walk_packages(ampsim.__path__, "ampsim."))


def has_examples(name: str) -> bool:
    """Whether a module's file has any, which is asked before it is imported."""
    spec = importlib.util.find_spec(name)
    assert spec is not None and spec.origin is not None
    return ">>>" in Path(spec.origin).read_text(encoding="utf-8")


WITH_EXAMPLES = list(filter(has_examples, MODULES))


@pytest.mark.parametrize("name", WITH_EXAMPLES)
def test_examples_give_what_they_say(name, monkeypatch):
    module = importlib.import_module(name)
    assert isinstance(module, types.ModuleType)
    # A narrow terminal would wrap what an example prints.
    monkeypatch.setenv("COLUMNS", "100")
    if ">>> import torch" in inspect.getsource(module):
        pytest.importorskip("torch", reason="PyTorch is not installed")
    result = doctest.testmod(module, optionflags=doctest.ELLIPSIS)
    assert result.failed == 0
