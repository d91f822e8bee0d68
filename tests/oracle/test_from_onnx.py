"""What comes from an ONNX file learns as in PyTorch, operator by operator, and goes back."""

from __future__ import annotations

import contextlib
import importlib.util
import io
from functools import cache
from typing import Any

import numpy as np
import pytest
from torch_oracle import torch
from torch_zoo import NETWORKS, case

import ampsim
from ampsim.errors import AmpsimError, GraphError, OptionError

onnx = pytest.importorskip("onnx", reason="onnx is not installed; the extra `onnx` has it")
pytest.importorskip("onnx.reference")
helper, numpy_helper = onnx.helper, onnx.numpy_helper
BATCH = 6
EXPORTERS = ("script", "dynamo")
REFUSED = {
    ("gpt", "script"): "PyTorch cannot export it",
    ("shared", "dynamo"): "it has functions as choices by what learns",
    ("transformer encoder", "dynamo"): "this exporter leaves out biases of 0",
    ("padded", "dynamo"): "this exporter leaves out biases of 0",
}
"""Networks that one of PyTorch's two exporters changes, or cannot write."""

SHARING = ("shared", "loop over cells")
"""Networks that use a layer several times; others have equal arrays, which a file keeps once."""

PADDED = ("lstm tagger", "lstm tagger, classes second", "padded")
"""Those with a row for padding that does not learn, which no ONNX file tells."""


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Where exported files are. PyTorch's table of operators, each time the same, is made once."""
    with pytest.MonkeyPatch.context() as patch:
        with contextlib.suppress(ImportError, AttributeError):  # its place is PyTorch's own affair
            place = importlib.import_module("torch.onnx._internal.exporter._registration")
            made_once = staticmethod(cache(place.ONNXRegistry.from_torchlib))
            patch.setattr(place.ONNXRegistry, "from_torchlib", made_once)
        yield tmp_path_factory.mktemp("exported")


def exported(name: str, exporter: str, files: Any) -> tuple[Any, Any]:
    """The case, and its file with a batch of any size; its loss is computed there.

    Of two that differ in their loss alone there is one file.
    """
    given = case(name)
    of = next(one for one in NETWORKS if NETWORKS[one].make is NETWORKS[name].make)
    path = files / f"{of}, {exporter}.onnx"
    inputs = tuple(one[:2] for one in given.data[0][:-1])
    how: dict[str, Any] = {"dynamo": exporter == "dynamo"}
    if exporter == "dynamo":
        if importlib.util.find_spec("onnxscript") is None:
            pytest.skip("this exporter of PyTorch's needs onnxscript")
        how["dynamic_shapes"] = tuple({0: torch.export.Dim("rows", min=2)} for _ in inputs)
    else:
        how["input_names"] = [f"x{place}" for place in range(len(inputs))]
        how["dynamic_axes"] = {one: {0: "rows"} for one in how["input_names"]}
    given.module.eval()
    if not path.exists():
        quiet = io.StringIO()
        with contextlib.redirect_stdout(quiet), contextlib.redirect_stderr(quiet):
            torch.onnx.export(given.module, inputs, str(path), verbose=False, **how)
    return given, path


@pytest.mark.filterwarnings("ignore")  # PyTorch's, of its exporters
@pytest.mark.parametrize("exporter", EXPORTERS)
@pytest.mark.parametrize("name", NETWORKS)
def test_what_pytorch_exports_learns_as_there_and_its_weights_go_back(name, exporter, files):
    """Five epochs of Adam, weights put back into the file, and its outputs by ONNX's evaluator."""
    if why := REFUSED.get((name, exporter)):
        pytest.skip(why)
    given, path = exported(name, exporter, files)
    if name in PADDED:
        for one in given.module.modules():
            if isinstance(one, torch.nn.Embedding):
                one.padding_idx = None
    arrays = tuple(tuple(one.numpy() for one in split) for split in given.data)
    fixed = [one for one in ("seen",) if one in _names(path)]
    of_target = "squared_error" if arrays[0][-1].dtype.kind == "f" else "cross_entropy"
    model = ampsim.from_onnx(
        path, loss=of_target, data=arrays, optimizer=ampsim.optim.adam(0.02), batch=BATCH,
        fixed=fixed, shares=name in SHARING,
    )  # fmt: skip
    result = ampsim.simulate(model, "tflops-1", ampsim.Sequential(), epochs=4)
    losses = trained(given, model, epochs=4)
    np.testing.assert_allclose(result.epochs["loss"], losses, rtol=1e-8)
    proto = ampsim.to_onnx(result, path)
    onnx.checker.check_model(proto)
    ports = [one.name for one in proto.graph.input]
    (output, *_more) = onnx.reference.ReferenceEvaluator(proto).run(
        None, dict(zip(ports, arrays[1], strict=False))
    )
    expected = given.module(*given.data[1][:-1]).detach().numpy()
    np.testing.assert_allclose(output, expected, rtol=0, atol=1e-7)


def _names(path: Any) -> set[str]:
    return {one.name for one in onnx.load(path).graph.initializer}


def trained(given: Any, model: Any, epochs: int) -> list[float]:
    """The mean loss of each epoch in PyTorch, on the same batches in the same order."""
    method = torch.optim.Adam(given.module.parameters(), 0.02)
    given.module.train()
    means = list[float]()
    for epoch in range(epochs):
        losses = list[tuple[float, int]]()
        for batch in model.data(0).batches("train", epoch=epoch, seed=0):
            *inputs, target = map(torch.from_numpy, map(np.array, batch.arrays))
            method.zero_grad()
            loss = given.loss(given.module(*inputs), target)
            loss.backward()
            method.step()
            losses.append((loss.item(), len(target)))
        values, counts = zip(*losses, strict=True)
        means.append(float(np.average(values, weights=counts)))
    given.module.eval()
    return means


def node(operator: str, *inputs: str, gives: Any = "z", **options: Any) -> Any:
    outputs = [gives] if isinstance(gives, str) else gives
    return helper.make_node(operator, inputs, outputs, name=f"a {operator}", **options)


RNG = np.random.default_rng(0)
ARRAYS = {
    "w": RNG.standard_normal((16, 16)) / 4, "b": RNG.standard_normal(16), "end": np.ones((16, 3)),
    "scale": RNG.standard_normal(16), "filters": RNG.standard_normal((3, 1, 2, 2)),
    "table": RNG.standard_normal((9, 16)), "offset": RNG.standard_normal(3),
    "W": RNG.standard_normal((2, 16, 4)) / 2, "R": RNG.standard_normal((2, 16, 4)) / 2,
    "B": RNG.standard_normal((2, 32)), "WG": RNG.standard_normal((1, 12, 4)) / 2,
    "RG": RNG.standard_normal((1, 12, 4)) / 2, "BG": RNG.standard_normal((1, 24)),
    "nine": np.array(9.0), "low": np.array(-0.5), "quarter": np.array([0.25]),
    "one": np.array([1]), "image": np.array([0, 1, 4, 4]), "square": np.array([0, 4, 4]),
    "rows": np.array([-1, 16]), "whole": np.array([1, 3, 16]), "ends": np.array([9]),
    "w2": RNG.standard_normal((16, 16)) / 4, "b2": RNG.standard_normal(16), "zero": np.array([0]),
    "thin": np.array([0, 1, 16]), "step": np.array([2]), "ones": np.ones(16), "b3": np.ones(16),
    "gain": np.array(2.0), "v": RNG.standard_normal((16, 5)) / 4, "c": RNG.standard_normal(5),
    "u": RNG.standard_normal((6, 5)) / 2,
}  # fmt: skip
"""Of a graph: h = x w + b of 16 columns; x is data, i are places in a table."""

SHIFTED = [node("Add", "h", "nine", gives="s")]
SQUARE = [node("Reshape", "h", "square", gives="s")]
IMAGE = [node("Reshape", "h", "image", gives="s")]
TURNED = [*SQUARE, node("Transpose", "s", gives="t", perm=[1, 0, 2])]
MASK = [node("Greater", "x", "quarter", gives="m")]
AFTER, BOTH = {"linear_before_reset": 1}, {"direction": "bidirectional"}
BESIDE = [node("Tanh", "h", gives="k")]
FLAT = node("Flatten", "r")
CASES: dict[str, list[Any]] = {
    **{name: [node(name, "h")] for name in (
        "Abs", "Cos", "Erf", "Exp", "Flatten", "Gelu", "Identity", "LogSoftmax",
        "Mish", "Neg", "Relu", "Sigmoid", "Sin", "Softmax", "Softplus", "Tanh", "Dropout",
    )},
    **{name: [*SHIFTED, node(name, "s")] for name in ("Log", "Reciprocal", "Sqrt")},
    **{name: [*BESIDE, node(name, "h", "k")] for name in ("Add", "Mul", "Sub")},
    **{name: [node(name, "x", "quarter", gives="m"), node("Where", "m", "h", "nine")] for name in (
        "Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual",
    )},
    **{name: [*SQUARE, node(name, "s", "one", gives="r"), FLAT] for name in (
        "ReduceMean", "ReduceSum",
    )},
    **{name: [*SQUARE, node(name, "s", "one", gives="r"), FLAT] for name in (
        "ReduceL2", "ReduceMax",
    )},
    **{name: [*IMAGE, node(name, "s", gives="r"), FLAT] for name in (
        "GlobalAveragePool", "GlobalMaxPool",
    )},
    "Elu": [node("Elu", "h", alpha=0.5)],
    "LeakyRelu": [node("LeakyRelu", "h", alpha=0.3)],
    "Cast": [node("Cast", "h", to=11)],
    "Clip": [node("Clip", "h", "low", "gain")],
    "Concat": [*BESIDE, node("Concat", "h", "k", axis=1)],
    "Conv": [
        *IMAGE, node("Conv", "s", "filters", "offset", gives="r", pads=[1] * 4, strides=[2, 1]),
        FLAT,
    ],
    "Div": [*SHIFTED, node("Div", "h", "s")],
    "Expand": [
        node("Reshape", "h", "thin", gives="s"), node("Expand", "s", "whole", gives="r"), FLAT,
    ],
    "GRU": [
        *TURNED, node("GRU", "t", "WG", "RG", "BG", gives=["", "r"], hidden_size=4, **AFTER),
        node("Squeeze", "r", "zero"),
    ],
    "Gather": [node("Gather", "table", "i", gives="e"), node("Add", "h", "e")],
    "Gemm": [node("Gemm", "h", "v", "c", gives="k"), node("Gemm", "k", "u", transB=1)],
    "LSTM": [
        *TURNED, node("LSTM", "t", "W", "R", "B", gives=["states"], hidden_size=4, **BOTH),
        node("Transpose", "states", gives="r", perm=[2, 0, 1, 3]), FLAT,
    ],
    "LayerNormalization": [node("LayerNormalization", "h", "scale", "b2", epsilon=1e-3)],
    "MatMul": [*SQUARE, node("MatMul", "s", "s", gives="r"), FLAT],
    "Max": [node("Max", "h", "low")],
    "MaxPool": [*IMAGE, node("MaxPool", "s", gives="r", kernel_shape=[2, 2], strides=[2, 1]), FLAT],
    "Min": [node("Min", "h", "gain")],
    "Not": [*MASK, node("Not", "m", gives="n"), node("Where", "n", "h", "nine")],
    "Pow": [node("Pow", "h", "gain")],
    "Reshape": [*SQUARE, node("Reshape", "s", "rows")],
    "Slice": [*SQUARE, node("Slice", "s", "one", "ends", "one", "step", gives="r"), FLAT],
    "Split": [
        node("Split", "h", gives=["p", "q"], axis=1, num_outputs=2),
        node("Concat", "q", "p", axis=1),
    ],
    "Squeeze": [node("Reshape", "h", "thin", gives="s"), node("Squeeze", "s", "one")],
    "Transpose": [*TURNED, node("Transpose", "t", gives="r", perm=[1, 2, 0]), FLAT],
    "Unsqueeze": [node("Unsqueeze", "h", "one", gives="s"), node("Flatten", "s")],
    "Where": [*MASK, *BESIDE, node("Where", "m", "h", "k")],
}  # fmt: skip
"""For each operator nodes from h to z; a graph goes on from z to three classes."""

SINGLE = ("Erf", "Gelu")
"""What ONNX's evaluator computes in single precision."""

KEPT = {"low", "gain", "nine", "quarter"}
"""Single numbers, which do not learn."""


def file_of(nodes: list[Any], ends: list[Any] | None = None, **arrays: np.ndarray) -> Any:
    """A model from x, and i, through some nodes to three classes."""
    begins = [node("MatMul", "x", "w", gives="xw"), node("Add", "xw", "b", gives="h")]
    ends = [node("MatMul", "z", "end", gives="y")] if ends is None else ends
    every = [*begins, *nodes, *ends]
    read = {name for one in every for name in one.input}
    held = {name: one for name, one in (ARRAYS | arrays).items() if name in read}
    numbers, tensor = onnx.TensorProto, helper.make_tensor_value_info
    inputs = [tensor("x", numbers.DOUBLE, ["rows", 16]), tensor("i", numbers.INT64, ["rows"])]
    graph = helper.make_graph(
        every, "a graph", inputs, [tensor("y", numbers.DOUBLE, ["rows", None])],
        [numpy_helper.from_array(one, name) for name, one in held.items()],
    )  # fmt: skip
    opset = [helper.make_opsetid("", 20)]
    return helper.make_model(graph, opset_imports=opset, ir_version=10)


def data() -> Any:
    rng = np.random.default_rng(1)
    x = rng.standard_normal((8, 16)).round(2)
    x[:, 3] = 0.25
    split = x, rng.integers(0, 9, 8), rng.integers(0, 3, 8)
    return split, split


def model_of(proto: Any, **options: Any) -> Any:
    method = ampsim.optim.sgd(1.0)
    options = {"loss": "cross_entropy", "data": data(), "optimizer": method, "batch": 8} | options
    return ampsim.from_onnx(proto, **options)


def widened(nodes: list[Any]) -> dict[str, np.ndarray]:
    """The last layer, as wide as what some nodes give."""
    proto = file_of(nodes, [node("Identity", "z", gives="y")])
    x, places, _labels = data()[0]
    (found,) = onnx.reference.ReferenceEvaluator(proto).run(None, {"x": x, "i": places})
    return {"end": np.random.default_rng(2).standard_normal((found.shape[1], 3))}


def loss_of(proto: Any) -> float:
    """The loss that ONNX's own evaluator leads to."""
    x, places, labels = data()[0]
    (y,) = onnx.reference.ReferenceEvaluator(proto).run(None, {"x": x, "i": places})
    logs = y - np.log(np.exp(y).sum(axis=1, keepdims=True))
    return -float(logs[np.arange(8), labels].mean())


def test_every_operator_is_tried_here():
    from ampsim.interop.onnx_graph import NODES

    assert set(CASES) == set(NODES)


@pytest.mark.parametrize("name", CASES)
def test_an_operator_has_the_gradient_that_differences_of_the_evaluator_s_loss_have(name):
    """Along a random direction of all arrays that learn."""
    proto = file_of(CASES[name], None, **widened(CASES[name]))
    model = model_of(proto)
    before, after = (
        {one.name: numpy_helper.to_array(one) for one in made.graph.initializer}
        for made in (
            ampsim.to_onnx(model, proto),
            ampsim.to_onnx(ampsim.simulate(model, "tflops-1", "sequential"), proto),
        )
    )
    moved = {one: before[one] - after[one] for one in before if (before[one] != after[one]).any()}
    learning = {one for one in before if before[one].dtype.kind == "f"} - KEPT
    assert moved.keys() == learning
    rng = np.random.default_rng(3)
    step, error = (1e-3, 1e-3) if name in SINGLE else (1e-5, 1e-5)
    way = {one: rng.standard_normal(before[one].shape) for one in sorted(learning)}
    losses = [
        loss_of(with_arrays(proto, {one: before[one] + sign * step * way[one] for one in way}))
        for sign in (1, -1)
    ]
    expected = sum(float((moved[one] * way[one]).sum()) for one in way)
    assert (losses[0] - losses[1]) / 2 / step == pytest.approx(expected, rel=error, abs=1e-7)


def with_arrays(proto: Any, arrays: dict[str, np.ndarray]) -> Any:
    made = onnx.ModelProto()
    made.CopyFrom(proto)
    for one in made.graph.initializer:
        if one.name in arrays:
            one.CopyFrom(numpy_helper.from_array(arrays[one.name], one.name))
    return made


RELU = [node("Relu", "h")]


@pytest.mark.parametrize(
    ("nodes", "told"),
    [
        ([node("BatchNormalization", "h", "scale", "b2", "b3", "ones")], "statistics of a batch"),
        ([node("Hardmax", "h")], r"no node for Hardmax \(node a Hardmax\); write that part"),
        ([node("Pow", "h", "b2")], "Pow: input 1 follows from data, or learns"),
        ([node("Min", "h", "gain", "nine")], "Min: it is of more than a tensor and a number"),
        ([node("Gemm", "h", "w2", "gain")], "a bias is one number for all columns"),
        ([node("Gemm", "h", "w2", alpha=2.0)], "Gemm: alpha, beta or transA is given"),
        ([*IMAGE, node("Conv", "s", "filters", gives="r", pads=[1, 1, 0, 0]), FLAT],
         "Conv: padding is not the same on both sides"),
        ([*IMAGE, node("Conv", "s", "filters", gives="r", dilations=[2, 2]), FLAT],
         r"a convolution has dilation or groups, or is transposed \(node a Conv\)"),
        ([node("MatMul", "h", "w2", gives="k"), node("Gemm", "k", "w2", transB=1)],
         "w2 is used by several operations that cannot be one node"),
        ([node("Greater", "h", "quarter", gives="m"), node("Where", "m", "h", "nine")],
         "Greater is by numbers that learn"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_one_line_with_node_and_remedy(nodes, told):
    proto = file_of(nodes, None, **widened(nodes))
    with pytest.raises(GraphError, match=told) as refused:
        model_of(proto, shares=True)
    assert str(refused.value).startswith("a graph: ") and "\n" not in str(refused.value)


def refusals(tmp_path: Any) -> dict[str, Any]:
    (tmp_path / "no.onnx").write_text("no such thing")
    proto, old = file_of(RELU), file_of(RELU)
    old.opset_import[0].version = 11
    x, places, labels = data()[0]
    return {
        "is no ONNX model": lambda: model_of(tmp_path / "no.onnx"),
        "cannot be read: No such file": lambda: model_of(tmp_path / "none.onnx"),
        "must be a path or an onnx.ModelProto, got 3": lambda: model_of(3),
        "of an opset before 13": lambda: model_of(old),
        "no loss named 'hinge'": lambda: model_of(proto, loss="hinge"),
        "optimizer must be one of ampsim.optim": lambda: model_of(proto, optimizer="adam"),
        "no option named 'rate'": lambda: model_of(proto, rate=1),
        "no array of the file named 'nobody'": lambda: model_of(proto, fixed=["nobody"]),
        "array b2 of a graph is read by 2 nodes": lambda: model_of(
            file_of([node("Add", "h", "b2", gives="k"), node("Add", "k", "b2")])
        ),
        "an array for each of the 2 inputs": lambda: model_of(proto, data=((x, labels),) * 2),
        "array w has no effect on the loss": lambda: model_of(
            file_of([node("Relu", "x")], w=ARRAYS["w"])
        ),
        "evaluator fails on a batch of 2": lambda: model_of(
            proto, data=((x[:, :9], places, labels),) * 2
        ),
        "the target in train must be whole numbers from 0 to 2": lambda: model_of(
            proto, data=((x, places, labels + 1),) * 2
        ),
        "not the file that this model came from": lambda: ampsim.to_onnx(
            model_of(proto), file_of([node("Gemm", "h", "w2")])
        ),
    }


def test_every_mistake_is_told_in_a_line(tmp_path):
    for told, call in refusals(tmp_path).items():
        with pytest.raises(AmpsimError) as refused:
            call()
        assert told in str(refused.value) and "\n" not in str(refused.value)


def test_values_may_have_any_name():
    """Also those by which the import knows something else."""
    proto = file_of(
        [node("Relu", "h", gives="target")], [node("MatMul", "target", "end", gives="y")]
    )
    model = model_of(proto)
    assert [one.name for one in model.graph().nodes] == ["controller", "w", "relu", "end", "loss"]


def test_what_is_called_fixed_does_not_learn():
    proto = file_of([node("Add", "h", "b2")])
    model = model_of(proto, fixed=["b2"])
    sizes = [sum(one.size for one in it.parameters().values()) for it in (model_of(proto), model)]
    assert sizes[0] - sizes[1] == 16


def test_an_array_that_several_nodes_read_is_one_layer_s_or_each_has_its_own():
    """Exporters keep equal arrays once, such as biases of 0; only the user knows."""
    nodes = [node("Gemm", "h", "w2", "b2", gives="k"), node("Gemm", "k", "w2", "b2")]
    proto, arrays = file_of(nodes), {}
    with pytest.raises(OptionError, match="array w2 of a graph is read by 2 nodes; say shares="):
        model_of(proto)
    for shares in (True, False):
        result = ampsim.simulate(model_of(proto, shares=shares), "tflops-1", "sequential")
        held = ampsim.to_onnx(result, proto).graph.initializer
        arrays[shares] = {one.name: numpy_helper.to_array(one) for one in held}
    assert {*arrays[False]} - {*arrays[True]} == {"w2-2", "b2-2"}
    ways = [arrays[False][one] - ARRAYS["b2"] for one in ("b2", "b2-2")]
    np.testing.assert_allclose(sum(ways), arrays[True]["b2"] - ARRAYS["b2"], atol=1e-12)


def test_a_mask_with_infinities_does_not_learn():
    mask = np.where(np.arange(16) % 3, 0.0, -np.inf)
    proto = file_of([node("Add", "h", "mask", gives="m"), node("Softmax", "m")], mask=mask)
    result = ampsim.simulate(model_of(proto), "tflops-1", "sequential")
    assert "mask" not in str(result.model.parameters().keys())
    held = {one.name: one for one in ampsim.to_onnx(result, proto).graph.initializer}
    np.testing.assert_array_equal(numpy_helper.to_array(held["mask"]), mask)


def test_sequences_may_have_several_lengths():
    """As from PyTorch: batches of either length, in one model."""
    sequence = [node("Transpose", "e", gives="t", perm=[1, 0, 2])]
    rng = np.random.default_rng(4)
    nodes = [
        node("Gather", "table", "i", gives="e"), *sequence,
        node("LSTM", "t", "W", "R", "B", gives=["", "r"], hidden_size=4, **BOTH),
        node("Transpose", "r", gives="s", perm=[1, 0, 2]), node("Reshape", "s", "eight"),
    ]  # fmt: skip
    table = {"table": rng.standard_normal((9, 4)), "eight": np.array([-1, 8])}
    proto = file_of(nodes, end=rng.standard_normal((8, 3)), **table)
    del proto.graph.node[:2], proto.graph.input[:1]
    kept = [one for one in proto.graph.initializer if one.name not in ("w", "b")]
    del proto.graph.initializer[:]
    proto.graph.initializer.extend(kept)
    batches = [(rng.integers(0, 9, (5, steps)), rng.integers(0, 3, 5)) for steps in (3, 5, 3, 6)]
    model = model_of(proto, data=(batches, batches), fixed=[])
    result = ampsim.simulate(model, "tflops-1", ampsim.Amp(3), epochs=2)
    assert result.epochs["instances"].iloc[-1] == 4 * 5
    assert len(set(result.spans.query("node.str.endswith('l0')").state)) > 4


def test_a_forecast_has_runs_in_other_processes():
    model = model_of(file_of(RELU))
    made = ampsim.forecast(model, "tflops-1", ["sequential", "amp"], max_epochs=1, jobs=2)
    assert len(made.table) == 2


def test_without_onnx_what_to_install_is_told(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "onnx", None)
    with pytest.raises(OptionError, match=r"pip install 'ampsim\[onnx\]'"):
        model_of("net.onnx")
