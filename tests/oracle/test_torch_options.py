"""Options of PyTorch's layers and losses that have no counterpart are refused; modes are heeded."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from torch_oracle import torch
from torch_zoo import case

import ampsim
from ampsim.errors import GraphError, OptionError

nn, F = torch.nn, torch.nn.functional
ROWS = 12
ITEMS = {
    "rows": torch.randn(ROWS, 4),
    "steps": torch.randn(ROWS, 5, 4),
    "images": torch.randn(ROWS, 2, 6, 6),
    "words": torch.randint(0, 9, (ROWS, 5)),
}
LABELS = torch.randint(0, 3, (ROWS,))


class Ended(nn.Module):
    """A layer, what of its output is taken, and a last layer."""

    def __init__(self, layer: Any, end: Callable[[Any], Any], example: Any):
        super().__init__()
        self.layer, self.end = layer, end
        self.last = nn.Linear(end(layer(example)).shape[1], 3)

    def forward(self, x):
        return self.last(self.end(self.layer(x)))


def flat(y: Any) -> Any:
    return y.flatten(1)


def at_end(y: Any) -> Any:
    return y[0][:, -1]


def imported(module: Any, x: Any, **changes: Any) -> ampsim.Model:
    given: dict[str, Any] = {
        "loss": nn.CrossEntropyLoss(),
        "data": ((x, LABELS), (x, LABELS)),
        "optimizer": torch.optim.SGD(module.parameters(), 0.1),
    }
    return ampsim.from_torch(module, x[:6], **{**given, **changes})


LAYERS: dict[str, tuple[str, Callable[[], Any], Callable[[Any], Any], str]] = {
    "dilation": ("images", lambda: nn.Conv2d(2, 2, 2, dilation=2), flat, "take nn.Conv2d with dil"),
    "turned": ("images", lambda: nn.ConvTranspose2d(2, 2, 2), flat, "take nn.Conv2d"),
    "reflected": (
        "images", lambda: nn.Conv2d(2, 2, 3, padding=1, padding_mode="reflect"), flat, "join parts"
    ),
    "three axes": (
        "images", lambda: nn.Sequential(nn.Unflatten(1, (1, 2)), nn.Conv3d(1, 1, 2)), flat,
        "take nn.Conv2d",
    ),
    "rounded up": ("images", lambda: nn.MaxPool2d(4, ceil_mode=True), flat, "leave both as"),
    "a pool's dilation": ("images", lambda: nn.MaxPool2d(2, dilation=2), flat, "leave both as"),
    "a mean of pixels": ("images", lambda: nn.AvgPool2d(2), flat, "take nn.MaxPool2d, or"),
    "groups": ("images", lambda: nn.GroupNorm(1, 2), flat, "take nn.LayerNorm"),
    "instances": ("images", lambda: nn.InstanceNorm2d(2), flat, "take nn.LayerNorm"),
    "a projection": (
        "steps", lambda: nn.LSTM(4, 4, batch_first=True, proj_size=2), at_end, "and proj_size=0"
    ),
    "no biases": ("steps", lambda: nn.GRU(4, 4, batch_first=True, bias=False), at_end, "bias=True"),
    "Elman's": ("steps", lambda: nn.RNN(4, 4, batch_first=True), at_end, "take nn.GRU or nn.LSTM"),
    "Elman's cell": ("rows", lambda: nn.RNNCell(4, 4), flat, "take nn.GRUCell or nn.LSTMCell"),
    "sparse": ("words", lambda: nn.Embedding(9, 4, sparse=True), flat, "leave both False"),
    "by frequency": (
        "words", lambda: nn.Embedding(9, 4, scale_grad_by_freq=True), flat, "leave both False"
    ),
    "bags": ("words", lambda: nn.EmbeddingBag(9, 4), flat, "take nn.Embedding, and a mean"),
}  # fmt: skip


@pytest.mark.filterwarnings("ignore")  # PyTorch's, of layers that are seldom used
@pytest.mark.parametrize("what", LAYERS)
def test_an_option_of_a_layer_without_counterpart_is_refused_with_a_remedy(what):
    items, make, end, remedy = LAYERS[what]
    x = ITEMS[items]
    with pytest.raises(GraphError) as caught:
        imported(Ended(make(), end, x), x)
    said = str(caught.value)
    assert said.startswith("Ended: ") and "\n" not in said
    assert remedy in said.partition("; ")[2], said
    assert f"({__file__}, line " in said


LOSSES: dict[str, tuple[Any, str]] = {
    "weights of classes": (nn.CrossEntropyLoss(weight=torch.ones(3)), "has weight"),
    "a class that is left out": (nn.CrossEntropyLoss(ignore_index=2), "has ignore_index"),
    "one for each item": (
        lambda output, target: F.cross_entropy(output, target, reduction="none").mean(),
        "has reduction",
    ),
    "a sum": (nn.MSELoss(reduction="sum"), "has reduction"),
}


@pytest.mark.parametrize("what", LOSSES)
def test_an_option_of_a_loss_is_refused_by_its_name(what):
    loss, said = LOSSES[what]
    x, y = ITEMS["rows"], LABELS if what != "a sum" else torch.randn(ROWS, 3)
    with pytest.raises(GraphError, match=rf"^Linear: the loss {said}.*; leave it at its default$"):
        imported(nn.Linear(4, 3), x, loss=loss, data=((x, y), (x, y)))


@pytest.mark.parametrize(
    ("train", "valid"),
    [
        ((4, 16, 8, 4), (4,)), ((12, 12, 8), (12, 5)), ((4, 16), (4,)), ((9,), (9,)),
        ((6, 6), (9, 9)), ((6, 6), (4, 6)), ((6, 5), (11,)),
    ],
)  # fmt: skip
def test_batches_of_a_list_stay_as_they_are(train, valid):
    """Also where they differ in their count of items, and in no length."""
    batches = [
        [(torch.randn(rows, 4), torch.zeros(rows).long()) for rows in split]
        for split in (train, valid)
    ]
    model = imported(nn.Linear(4, 3), batches[0][0][0], data=batches)
    data: Any = model.data(0)
    for split, given in (("train", train), ("valid", valid)):
        found = [len(one.arrays[0]) for one in data.batches(split, epoch=0, seed=0)]
        assert sorted(found) == sorted(given)
    assert model.config.batch == max(train)
    result = ampsim.simulate(model, "tflops-1", "sequential")
    assert len(result.updates) == len(train)
    for count in (1, sum(train) - 1):  # of which the last batch is cut, as of `ArrayDataset`
        result = ampsim.simulate(model, "tflops-1", "sequential", instances=count)
        assert result.epochs["instances"].tolist() == [count]
    with pytest.raises(OptionError, match=rf"^instances must be at most {sum(train)}, all that"):
        model.data(0, sum(train) + 1)


class Masked(nn.Module):
    """As in PyTorch's tutorial on language models: it tells a mask, and not that it is causal."""

    def __init__(self, **options: bool):
        super().__init__()
        layer = nn.TransformerEncoderLayer(4, 2, 8, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.last, self.options = nn.Linear(4, 3), options

    def forward(self, x):
        mask = nn.Transformer.generate_square_subsequent_mask(x.size(1))
        return self.last(self.encoder(x, mask=mask, **self.options)[:, -1])


def test_whether_a_mask_is_causal_is_to_be_told():
    with pytest.raises(
        GraphError, match=r"^Masked: PyTorch looks whether .* say so beside it, is_"
    ):
        imported(Masked(), ITEMS["steps"])
    for is_causal in (True, False):
        graph: Any = imported(Masked(is_causal=is_causal), ITEMS["steps"]).make_graph
        assert "is_causal" in str(graph.plan)


class Reader(nn.Module):
    """A causal mask and one of padding, neither of which has the shape of both."""

    def __init__(self):
        super().__init__()
        layer = nn.TransformerEncoderLayer(4, 2, 6, dropout=0.0, batch_first=True)
        self.words, self.encoder = nn.Embedding(9, 4), nn.TransformerEncoder(layer, 1)
        self.last = nn.Linear(4, 3)

    def forward(self, x):
        later = torch.triu(torch.ones(x.size(1), x.size(1), dtype=torch.bool), 1)
        told = {"mask": later, "src_key_padding_mask": x == 8, "is_causal": True}
        return self.last(self.encoder(self.words(x), **told)[:, -1])


def test_a_causal_mask_and_one_of_padding_go_together():
    module, words = Reader().double(), torch.randint(0, 8, (ROWS, 5))
    words[::2, 3:] = 8
    imported(module, words, data=((words, LABELS), (words, LABELS)))  # compared with PyTorch


@pytest.mark.parametrize("is_expanded", [False, True])
def test_a_mask_need_not_be_expanded_and_a_refusal_says_so(is_expanded):
    class Unseen(nn.Module):
        def __init__(self):
            super().__init__()
            self.words, self.last = nn.Embedding(9, 4), nn.Linear(4, 3)

        def forward(self, x):
            mask = (x == 0).unsqueeze(-1)
            mask = mask.expand(-1, -1, 4) if is_expanded else mask
            return self.last(self.words(x).masked_fill(mask, 0.0).sum(1))

    if not is_expanded:
        assert imported(Unseen(), ITEMS["words"])
        return
    with pytest.raises(GraphError, match=r"whole numbers are .*; .* or leave expand out$"):
        imported(Unseen(), ITEMS["words"])


class Spread(nn.Module):
    """Its bias is one number for all columns, which PyTorch takes."""

    def __init__(self):
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.randn(3, 4)), nn.Parameter(torch.randn(1))

    def forward(self, x):
        return F.linear(x, self.weight, self.bias)


def test_a_bias_of_one_number_is_refused():
    with pytest.raises(GraphError, match=r"^Spread: a bias is one number for all columns .*; give"):
        imported(Spread(), ITEMS["rows"])


INSTEAD: dict[str, tuple[Callable[[Any, Any], Any], str]] = {
    "a number of a parameter": (
        lambda module, y: y * module.bias[0].item(), "has no node for item .*; leave .item() o"
    ),
    "a threshold": (
        lambda _module, y: F.threshold(y, 0.0, 0.0),
        "threshold is by numbers that learn .*; choose by the data, multiply, or take F.relu",
    ),
    "the largest": (
        lambda _module, y: F.adaptive_max_pool2d(y[:, :, None, None], 1).flatten(1),
        "has no node for adaptive_max_pool2d .*; take nn.MaxPool2d, or, to one pixel, x.amax((-2, ",
    ),
    "the data of a parameter": (
        lambda module, y: y + module.bias.data,
        "a tensor is read that is no parameter, .* such as .data of one; leave .data out, or ",
    ),
}  # fmt: skip


class Acting(nn.Linear):
    """A layer with something done to what it gives."""

    def __init__(self, acts: Callable[[Any, Any], Any]):
        super().__init__(4, 3)
        self.acts = acts

    def forward(self, input):  # as nn.Linear names it
        return self.acts(self, super().forward(input))


@pytest.mark.parametrize("what", INSTEAD)
def test_what_has_another_way_in_pytorch_is_refused_with_that(what):
    acts, said = INSTEAD[what]
    with pytest.raises(GraphError, match=re.escape(said).replace(r"\.\*", ".*")):
        imported(Acting(acts), ITEMS["rows"])


def test_a_dropout_in_place_is_refused_with_the_option_to_leave_out():
    module = nn.Sequential(nn.Linear(4, 3), nn.Dropout(0.5, inplace=True))
    with pytest.raises(
        GraphError, match=r"dropout_ changes a .* in place .*; leave inplace=True out"
    ):
        imported(module, ITEMS["rows"])


@pytest.mark.parametrize("when", ["pre", "post"])
def test_hooks_of_an_optimizer_s_steps_are_refused(when):
    """Such as one that clips gradients."""
    module = nn.Linear(4, 3)
    optimizer = torch.optim.SGD(module.parameters(), 0.1)
    getattr(optimizer, f"register_step_{when}_hook")(lambda *given: None)
    with pytest.raises(OptionError, match=r"no hooks of its steps.*; leave register_step_pre_hook"):
        imported(module, ITEMS["rows"], optimizer=optimizer)


class SGD(torch.optim.SGD):
    """A method of its own, under PyTorch's name."""


@pytest.mark.parametrize("what", ["a class", "a module"])
def test_an_optimizer_of_another_class_or_module_is_refused(what):
    module, other = nn.Linear(4, 3), nn.Linear(4, 3)
    optimizer, said = SGD(module.parameters(), 0.1), rf"got SGD of {__name__}; try torch.optim.Adam"
    if what == "a module":
        optimizer, said = torch.optim.SGD(other.parameters(), 0.1), "got 2 of another module; give"
    with pytest.raises(OptionError, match=said):
        imported(module, ITEMS["rows"], optimizer=optimizer)


def test_a_size_of_batches_is_refused_where_data_come_in_batches():
    rows = [(ITEMS["rows"], LABELS)]
    with pytest.raises(OptionError, match=r"^batch has no effect on data that come in batches"):
        imported(nn.Linear(4, 3), ITEMS["rows"], data=(rows, rows), batch=5)


def test_a_hook_that_only_accumulated_gradients_call_is_refused():
    """It does nothing where gradients are asked for, as they are to compare them."""
    module = nn.Linear(4, 3)
    module.weight.register_post_accumulate_grad_hook(lambda weight: weight.grad.mul_(0.1))
    said = (
        "^Linear: weight has a hook on its gradient, which is not taken over; leave register_post"
    )
    with pytest.raises(GraphError, match=said):
        imported(module, ITEMS["rows"])


@pytest.mark.parametrize("then", [nn.Identity, nn.GLU], ids=["alone", "beside another"])
def test_a_module_in_evaluation_is_imported_as_it_trains(then):
    """Or dropout would vanish; PyTorch takes it apart with what else has no rule, as GLU."""
    rest = (nn.Dropout(0.5), then(), nn.Linear(2 if then is nn.GLU else 4, 3))
    module = nn.Sequential(nn.Linear(4, 4), *rest).eval()
    model = imported(module, ITEMS["rows"])
    assert "1.dropout" in [node.name for node in model.graph().nodes]
    assert not any(one.training for one in module.modules())


def test_what_a_loop_in_python_calls_in_each_step_is_one_node():
    """With states that have a step: the cells, and a layer that is called twice."""
    given = case("loop over cells")
    model = imported(
        given.module, given.data[0][0][:ROWS], data=given.data, optimizer=given.optimizer
    )
    kinds = Counter(type(node).__name__ for node in model.graph().parameterized)
    assert kinds == {"LSTMCell": 1, "GRUCell": 1, "Linear": 2}
    result = ampsim.simulate(model, "tflops-1", "sequential", instances=ROWS)
    served = result.spans.query("direction == 'forward' and instance == 0")
    steps = served.drop_duplicates(["node", "state"]).groupby("node").size()
    assert sorted(steps[[node.name for node in model.graph().parameterized]]) == [1, 2, 4, 4]


class WithMore(nn.Linear):
    def get_extra_state(self):
        return {"version": 1}


def test_a_state_that_is_no_tensor_is_refused():
    said = "^WithMore: _extra_state in the state_dict is no tensor, but dict; leave get_extra_state"
    with pytest.raises(GraphError, match=said):
        imported(WithMore(4, 3), ITEMS["rows"])


class WithBuffer(nn.Linear):
    def __init__(self, *, is_kept: bool):
        super().__init__(4, 3)
        self.register_buffer("mask", torch.ones(4, dtype=torch.bfloat16), persistent=is_kept)

    def forward(self, x):
        return super().forward(x * self.mask)


@pytest.mark.parametrize("is_kept", [False, True])
def test_a_buffer_of_a_type_that_numpy_lacks_is_refused(is_kept):
    said = r"^WithBuffer: buffer mask is of torch\.bfloat16; let it be of float32$"
    with pytest.raises(GraphError, match=said):
        imported(WithBuffer(is_kept=is_kept), ITEMS["rows"])


@pytest.mark.filterwarnings("ignore")  # that torch.jit is deprecated
@pytest.mark.parametrize(
    "made", [torch.jit.script, lambda net: torch.jit.trace(net, ITEMS["rows"])]
)
def test_what_torch_jit_made_is_told(made):
    with pytest.raises(OptionError, match=r"^module .*, got \w+Module; try Net\(\), no jit$"):
        imported(made(nn.Linear(4, 3)), ITEMS["rows"])


class Recursive(nn.Module):
    """A cell over a tree of tuples."""

    def __init__(self):
        super().__init__()
        self.cell, self.last = nn.Linear(8, 4), nn.Linear(4, 3)

    def reduced(self, tree):
        if isinstance(tree, torch.Tensor):
            return tree
        return torch.tanh(self.cell(torch.cat([self.reduced(one) for one in tree], 1)))

    def forward(self, tree):
        return self.last(self.reduced(tree))


def test_an_input_with_a_structure_is_refused_with_the_way_that_there_is():
    x, module = ITEMS["rows"], Recursive()
    with pytest.raises(
        OptionError, match=r"^example_inputs must be a tensor.*; of a tree or graph"
    ):
        ampsim.from_torch(
            module, ((x, (x, x)),), loss=nn.CrossEntropyLoss(), data=((x, LABELS), (x, LABELS)),
            optimizer=torch.optim.SGD(module.parameters(), 0.1),
        )  # fmt: skip


def test_a_scan_over_sequences_of_several_lengths_is_refused():
    scan = pytest.importorskip("torch._higher_order_ops.scan").scan

    class Scanning(nn.Module):
        def __init__(self):
            super().__init__()
            self.cell, self.last = nn.GRUCell(4, 4), nn.Linear(4, 3)

        def forward(self, x):
            def step(state, row):
                state = self.cell(row, state)
                return state, state.clone()

            return self.last(scan(step, x.new_zeros(x.shape[0], 4), x.transpose(0, 1), dim=0)[0])

    batches = [(torch.randn(6, steps, 4), LABELS[:6]) for steps in (3, 5)]
    with pytest.raises(GraphError, match=r"^Scanning: sequences must have one length beside"):
        imported(Scanning(), batches[0][0], data=(batches, batches))


def test_dropout_between_layers_of_a_reader_drops_in_training_only():
    torch.manual_seed(0)
    x = ITEMS["steps"]
    reader = nn.LSTM(4, 4, num_layers=2, batch_first=True, dropout=0.5)
    model = imported(Ended(reader, at_end, x), x)
    (node,) = (one for one in model.graph().nodes if type(one).__name__ == "Dropout")
    ((_port, _state, dropped),) = node.forward(0, (0, 0), np.ones((100, 4)))
    assert {*np.unique(dropped)} == {0.0, 2.0}
    node.is_training = False
    ((_port, _state, kept),) = node.forward(0, (1, 0), np.ones((100, 4)))
    assert (kept == 1).all()


class LearningLoss(nn.Module):
    def __init__(self):
        super().__init__()
        self.head = nn.Linear(3, 3)

    def forward(self, output, target):
        return F.cross_entropy(self.head(output), target)


def test_a_loss_with_parameters_of_its_own_is_refused():
    """Of one nameless parameter it was said that several operations use it."""
    net, x = nn.Linear(4, 3), ITEMS["rows"]
    with pytest.raises(GraphError, match=r"^Linear: the loss has parameters of its own; keep "):
        ampsim.from_torch(
            net, x, loss=LearningLoss(), data=((x, LABELS), (x, LABELS)),
            optimizer=torch.optim.SGD(net.parameters(), 0.1),
        )  # fmt: skip


def test_data_with_masked_numbers_are_refused():
    net, x = nn.Linear(4, 3), ITEMS["rows"]
    split = (np.ma.masked_less(x.numpy(), 0.0), LABELS)
    with pytest.raises(OptionError, match=r"^an array of data must have a number at every place"):
        imported(net, x, data=(split, split))


class Scaled(nn.Module):
    def __init__(self, reduced: Callable[[Any], Any]):
        super().__init__()
        self.w, self.last, self.reduced = nn.Parameter(torch.randn(4)), nn.Linear(4, 3), reduced

    def forward(self, x):
        return self.last(x) * self.reduced(self.w)


@pytest.mark.parametrize(
    "reduced",
    [
        lambda w: w.sum(),
        lambda w: w[:3].sum(0),
        lambda w: w.mean(0, keepdim=True),
        lambda w: w.reshape(2, 2).sum(),
    ],
)
def test_a_parameter_that_is_reduced_to_one_number_is_refused_with_what_to_try(reduced):
    """The sum was left out, and hooks were to blame for another loss."""
    told = r"Scaled: \w+ is over all axes, as of a parameter w .*, line \d+.*take w.reshape\(-1, "
    with pytest.raises(GraphError, match=told):
        imported(Scaled(reduced), ITEMS["rows"])


def test_what_is_to_be_tried_instead_is_imported():
    made = imported(Scaled(lambda w: w[:3].reshape(-1, 1).sum(0)), ITEMS["rows"])
    assert len(made.parameters()) == 3


class Reversed(nn.Module):
    """Its first layer's gradients are turned round, which no recording sees."""

    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(4, 4), nn.Linear(4, 1)

    def forward(self, x):
        h = self.first(x)
        if h.requires_grad:
            h.register_hook(torch.neg)
        return self.last(h)


@pytest.mark.parametrize("scale", [1.0, 1e3])
def test_a_wrong_gradient_is_refused_beside_a_loss_however_large(scale):
    module = Reversed()
    with torch.no_grad():
        module.last.weight *= 1e-2
    data = (torch.randn(40, 4), scale * torch.randn(40, 1))
    given: dict[str, Any] = {"data": (data, data), "optimizer": ampsim.optim.sgd(0.1)}
    with pytest.raises(GraphError, match=r"the gradient of first[.]weight of a batch of 6 is no"):
        ampsim.from_torch(module, data[0][:6], loss=nn.MSELoss(), **given)
