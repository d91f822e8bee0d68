"""A placement file: each node one worker, and each mistake one line."""

import re

import numpy as np
import pytest

import ampsim
from ampsim.errors import FileFormatError
from ampsim.hardware import Cluster, Device
from ampsim.ir import Graph
from ampsim.model_parallel import Situation, placement_of
from ampsim.model_parallel.placements.file import SIZE_BYTES_MAX
from ampsim.nodes import Linear, SoftmaxCrossEntropy

GOOD = 'linear = 1\n"copy.0" = 0\nloss = 1\n'


@pytest.fixture
def place(tmp_path, monkeypatch):
    """What the placement file with the given content says, for two workers."""
    monkeypatch.chdir(tmp_path)
    graph = Graph("g")
    wire, label = graph.controller(x=("rows", 4), label=("rows",))
    wire = graph.add(Linear("copy.0", 4, 4), graph.add(Linear("linear", 4, 4), wire))
    graph.end(SoftmaxCrossEntropy("loss"), wire, label)
    graph.verify()
    cluster = Cluster(name="c", devices=(Device(name="d", flop_per_s=1.0),) * 2)

    def run(content: str | bytes) -> list[int]:
        (tmp_path / "p.toml").write_bytes(content.encode() if isinstance(content, str) else content)
        generator = np.random.default_rng(0)
        no_probe = lambda: pytest.fail("a file needs no probe")  # noqa: E731  # one use
        return placement_of("p.toml").place(Situation(graph, cluster, generator, no_probe))

    return run


def test_each_node_goes_where_the_file_says(place):
    assert place(GOOD) == [-1, 1, 0, 1]
    assert place(b"\xef\xbb\xbf" + GOOD.encode()) == [-1, 1, 0, 1]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("linear = 1\nloss = 0\n", "missing key 'copy.0'; give each node a worker, as in \"copy.0"),
        (
            "loss = 0\n",
            "missing key 'linear' (and 1 others); give each node a worker, as in linear ",
        ),
        ("", "missing key 'linear' (and 2 others)"),
        (GOOD + "linear = 0\n", "'linear' has a worker twice; keep one of the two lines"),
        (GOOD + '"copy.0" = 0', "'copy.0' has a worker twice; keep one of the two lines"),
        (
            GOOD + "lineal = 0\n",
            "no node named 'lineal'; did you mean 'linear'? known: copy.0, lin",
        ),
        (GOOD + "controller = 0\n", "'controller' lives on the host, which is no worker; remove"),
        (
            "copy.0 = 0\n",
            "'copy' is a table, expected NODE = WORKER; put a name that holds a dot i",
        ),
        (GOOD.replace("= 0", "= 2"), "copy.0 must be a worker, 0 to 1, got 2; change it, or add"),
        (GOOD.replace("= 0", "= -1"), "copy.0 must be a worker, 0 to 1, got -1"),
        (GOOD.replace("= 0", "= true"), "copy.0 must be a worker, 0 to 1, got True"),
        (GOOD.replace("= 0", "= 0.0"), "copy.0 must be a worker, 0 to 1, got 0.0"),
        (GOOD.replace("= 0", '= "0"'), "copy.0 must be a worker, 0 to 1, got '0'"),
        ("linear == 1", "is not valid TOML: "),
        ("a = " + "[" * 5000, "is nested too deeply; write NODE = WORKER"),
        (b"\xff", "expected UTF-8 text, got byte 0xff at offset 0; save it as UTF-8"),
        (
            b"#" * (SIZE_BYTES_MAX + 1),
            "expected at most 10000000 bytes, got more; is it a placemen",
        ),
    ],
)
def test_a_mistake_is_one_line_naming_file_key_and_remedy(place, content, said):
    with pytest.raises(FileFormatError, match=f"^p.toml: {re.escape(said)}") as caught:
        place(content)
    assert len(str(caught.value).splitlines()) == 1


def test_a_worker_that_a_rank_lacks_is_said_to_be_of_the_rank(tmp_path, monkeypatch):
    """There are three, of which each rank has one."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "p.toml").write_text("linear-1 = 0\nloss = 1\n", "utf-8")
    model = ampsim.load_model("mlp", layers=1, data="synthetic")
    cluster = ampsim.load_cluster("tflops-1", workers=3)
    said = "loss must be a worker, 0 to 0, got 1; change it, or add workers, under a solver to "
    with pytest.raises(FileFormatError, match=said):
        ampsim.simulate(model, cluster, ampsim.SyncSGD(3), instances=100, placement="p.toml")


def test_a_file_that_is_not_there_is_one_line(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    text = "^none.toml: cannot be read: no such file or directory; check the path and its permiss"
    with pytest.raises(FileFormatError, match=text):
        _ = placement_of("none.toml").origin
