"""What the README shows runs as it stands."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
import typer

from ampsim.cli import entry
from ampsim.recipes.recipe import read_recipe

README = Path(__file__).resolve().parents[2] / "README.md"
COMMAND_LINE = README.parent / "docs" / "command-line.md"
WORDS_MAX = 1_200  # of the whole file, code and tables included; may only become less


def test_the_readme_is_read_in_minutes():
    assert len(README.read_text(encoding="utf-8").split()) <= WORDS_MAX


def test_the_readme_says_what_its_words_mean_before_it_uses_them():
    text = README.read_text(encoding="utf-8")
    first_command = text.index("<!-- command:")
    for word in ("instance", "worker", "update", "staleness"):
        (line,) = re.findall(rf"^\* .*\*\*{word}\*\*.*$", text, re.MULTILINE | re.IGNORECASE)
        assert text.index(line) < first_command


def test_a_single_seed_without_tuning_is_named_beside_its_picture():
    """So that nobody takes the figure of convergence for a ranking."""
    text = README.read_text(encoding="utf-8")
    after = " ".join(text.partition("/convergence.png)")[2].split())
    recipe = read_recipe(README.parent / "reports" / "forecast-1tflops")
    assert len(recipe.file.seeds) == 1 and recipe.file.tune is None
    assert "one seed" in after[:200] and "not tuned" in after[:200]


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


def test_the_readme_and_the_page_on_commands_name_every_command():
    commands = set(typer.main.get_command(entry.app).commands)  # type: ignore[attr-defined]
    text = README.read_text(encoding="utf-8")
    (sentence,) = re.findall(r"Other commands are (.*?):", text, re.DOTALL)
    told = {name.removeprefix("ampsim ") for name in re.findall(r"`([^`]+)`", sentence)}
    shown = set(re.findall(r"\bampsim (forecast|report)\b", text))
    assert told | shown == commands
    table = re.findall(r"^\| (`ampsim.*?) \| ", COMMAND_LINE.read_text("utf-8"), re.MULTILINE)
    assert set(re.findall(r"`ampsim (\w+)", " ".join(table))) == commands


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
