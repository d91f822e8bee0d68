"""A suite that is run in two parts leaves nothing out of both."""

from pathlib import Path

import pytest

CONFTEST = Path(__file__).with_name("conftest.py")


def test_a_file_is_read_no_more_only_where_each_of_its_tests_passed(pytestconfig: pytest.Config):
    conftest = pytestconfig.pluginmanager.get_plugin(str(CONFTEST))
    assert conftest is not None
    passed = ["whole.py::a[x::y]", "whole.py::b", "part.py::a"]
    collected = {"whole.py": 2, "part.py": 2, "skipped.py": 1}
    assert conftest.whole_files(passed, collected) == ["whole.py"]
