"""Figures as files: formats, bytes, errors, and no trace of the user's settings."""

from __future__ import annotations

import io
import xml.etree.ElementTree as ElementTree

import matplotlib
import numpy as np
import pytest
from PIL import Image

from ampsim.errors import OptionError, OutputError
from ampsim.report.gantt.chart import gantt
from ampsim.report.plot.bars import throughput
from ampsim.report.saving import SHADES, look_alike, save

STARTS = {".png": b"\x89PNG", ".svg": b"<?xml", ".pdf": b"%PDF", ".SVG": b"<?xml"}
"""Of each suffix how a file of the format that it chooses begins."""


def test_the_same_figure_gives_the_same_bytes_in_the_format_that_the_suffix_chooses(
    figure_1, tmp_path
):
    twice = [gantt({"amp": figure_1["amp"]}, workers=3) for _ in "12"]
    for suffix, start in STARTS.items():
        one, other = (
            save(figure, tmp_path / f"{number}{suffix}").read_bytes()
            for number, figure in enumerate(twice)
        )
        assert one == other, suffix
        assert one.startswith(start), suffix
        assert len(one) > 1000, suffix
        assert b"20" + b"26-" not in one, f"no date in {suffix}"


@pytest.mark.parametrize(("name", "got"), [("a.jpg", "'.jpg'"), ("a", "'none'")])
def test_an_unknown_suffix_is_refused_with_the_known_ones(make_table, tmp_path, name, got):
    expected = rf"its suffix must be one of \.png, \.svg, \.pdf, got {got}$"
    with pytest.raises(OptionError, match=expected) as caught:
        save(throughput(make_table()), tmp_path / name)
    assert "\n" not in str(caught.value)
    assert not list(tmp_path.iterdir())


def test_a_folder_that_is_not_there_is_named(make_table, tmp_path):
    with pytest.raises(OutputError, match="missing"):
        save(throughput(make_table()), tmp_path / "missing" / "a.png")


def test_a_hostile_title_is_text_in_svg(figure_1, tmp_path):
    title = "<script>alert(1)</script> --> <b>&"
    path = save(gantt({title: figure_1["amp"]}, workers=3), tmp_path / "a.svg")
    tags = {element.tag.rpartition("}")[2] for element in ElementTree.parse(path).iter()}
    assert "script" not in tags
    assert "b" not in tags


def test_the_users_settings_change_nothing_and_are_not_changed(make_table, tmp_path):
    plain = save(throughput(make_table()), tmp_path / "plain.svg").read_bytes()
    with matplotlib.rc_context({"font.size": 23.0, "axes.facecolor": "red", "svg.hashsalt": "x"}):
        before = dict(matplotlib.rcParams)
        styled = save(throughput(make_table()), tmp_path / "styled.svg").read_bytes()
        assert dict(matplotlib.rcParams) == before
    assert styled == plain


def _png(pixels: np.ndarray) -> bytes:
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "png")
    return file.getvalue()


def test_pictures_look_alike_where_a_shade_is_rounded_otherwise_and_only_there():
    before = np.full((4, 6, 3), 100, np.uint8)
    shade, point = before.copy(), before.copy()
    shade[1, 2, 0] += SHADES
    point[1, 2, 0] += SHADES + 1
    assert look_alike(_png(before), _png(shade))
    for other in (_png(point), _png(before[:3]), _png(before)[:45], b"", b"no picture"):
        assert not look_alike(_png(before), other)
