"""Every example in a docstring gives what it says."""

import doctest
import importlib
import inspect
import pkgutil
import types

import pytest

import ampsim

MODULES = sorted(module.name for module in pkgutil.walk_packages(ampsim.__path__, "ampsim."))


@pytest.mark.parametrize("name", MODULES)
def test_examples_give_what_they_say(name, monkeypatch):
    module = importlib.import_module(name)
    assert isinstance(module, types.ModuleType)
    # A narrow terminal would wrap what an example prints.
    monkeypatch.setenv("COLUMNS", "100")
    if ">>> import torch" in inspect.getsource(module):
        pytest.importorskip("torch", reason="PyTorch is not installed")
    result = doctest.testmod(module, optionflags=doctest.ELLIPSIS)
    assert result.failed == 0
