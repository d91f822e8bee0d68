"""What the README shows runs as it stands."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from ampsim.recipes.recipe import read_recipe

README = Path(__file__).resolve().parents[2] / "README.md"


@pytest.mark.slow
def test_the_python_example_runs_in_an_empty_folder(tmp_path):
    (example,) = re.findall(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", example],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert re.search(r"lists/s, staleness \d", done.stdout)
    assert "sequential" in done.stdout and "amp" in done.stdout
    assert not list(tmp_path.iterdir())


def test_every_command_of_the_readme_exists():
    text = README.read_text(encoding="utf-8")
    named = set(re.findall(r"ampsim (forecast|run|gantt|devices|models|check|data|report)\b", text))
    assert named == {"forecast", "run", "gantt", "devices", "models", "check", "data", "report"}


def test_the_pictures_of_the_readme_are_made_by_the_command_that_it_names():
    text = README.read_text(encoding="utf-8")
    (command,) = re.findall(r"<!-- command: pictures -->\n```sh\n(.*)\n```", text)
    program, verb, *named = command.split()
    assert (program, verb) == ("ampsim", "report")
    pictures = re.findall(r"!\[[^\]]+\]\(reports/([\w-]+)/([\w-]+)\.png\)", text)
    assert len(pictures) == text.count("![") == 2
    for name, figure in pictures:
        assert name in named
        assert figure in read_recipe(README.parent / "reports" / name).file.figures
