"""What cannot be imported is told in a line: the operation, the user's line, what to try."""

from __future__ import annotations

import inspect
import random
import re
from pathlib import Path
from typing import Any

import pytest
from torch_oracle import torch

import ampsim
from ampsim.errors import AmpsimError, GraphError, OptionError

nn, F = torch.nn, torch.nn.functional


class Base(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(4, 4)
        self.last = nn.Linear(4, 3)


class Summing(Base):
    def forward(self, x):
        x = self.first(x)
        x = x.cumsum(1)  # here
        return self.last(x)


class NowAndThen(Base):
    def forward(self, x):
        if self.training and random.random() < 0.001:
            return self.last(x)
        return self.last(self.first(x))


class OfASize(Base):
    def forward(self, x):
        x = self.first(x) * x.size(0)  # here
        return self.last(x)


class SoftmaxOverTheBatch(Base):
    def forward(self, x):
        x = self.first(x)
        x = x.softmax(0)  # here
        return self.last(x)


class ChosenByValue(Base):
    def forward(self, x):
        x = self.first(x)
        x = torch.where(x > 0, x, 0.0)  # here
        return self.last(x)


class PlacesInTheBatch(Base):
    def forward(self, x):
        x = self.first(x) + torch.arange(x.size(0)).unsqueeze(1)  # here
        return self.last(x)


class Branching(Base):
    def forward(self, x):
        x = self.first(x)
        if x.sum() > 0:  # here
            x = x * 2
        return self.last(x)


class Normalised(Base):
    def __init__(self):
        super().__init__()
        self.norm = nn.BatchNorm1d(4)

    def forward(self, x):
        x = self.norm(self.first(x))  # here
        return self.last(x)


class Tied(Base):
    def __init__(self):
        super().__init__()
        self.other = nn.Linear(4, 3)
        self.other.weight = self.last.weight

    def forward(self, x):
        return self.last(self.first(x)) + self.other(x)  # here


class TiedInUse(Base):
    def forward(self, x):
        x = self.first(x)
        x = F.linear(x, self.first.weight)  # here
        return self.last(x)


class Frozen(Base):
    def __init__(self):
        super().__init__()
        self.first.weight.requires_grad = False

    def forward(self, x):
        return self.last(self.first(x))


class FixedBatch(Base):
    def forward(self, x):
        x = self.first(x).view(20, 4)  # here
        return self.last(x)


class Conditional(Base):
    def forward(self, x):
        x = torch.cond(x.sum() > 0, lambda x: x.cumsum(1), lambda x: x * 3, (x,))  # here
        return self.last(self.first(x))


class Uneven(Base):
    def forward(self, x):
        x = self.first(x)
        return torch.cond(x.sum() > 0, lambda x: x, lambda x: x[:, :2], (x,))  # here


class CountingBeside(Base):
    def __init__(self):
        super().__init__()
        self.register_buffer("count", torch.zeros(()))

    def forward(self, x):
        self.count.add_(1)
        return self.last(torch.cond(x.sum() > 0, torch.tanh, torch.sigmoid, (self.first(x),)))


class Unused(Base):
    def __init__(self):
        super().__init__()
        self.spare = nn.Linear(4, 4)

    def forward(self, x):
        return self.last(self.first(x))


class InPlace(Base):
    def forward(self, x):
        x = self.first(x)
        x[:, 0] = 0  # here
        return self.last(x)


class BatchSecond(Base):
    def __init__(self):
        super().__init__()
        self.reader = nn.LSTM(4, 4)

    def forward(self, x):
        x, _state = self.reader(x.unsqueeze(1))  # here
        return self.last(x[:, 0])


class Masked(Base):
    def forward(self, x):
        q = self.first(x).unsqueeze(1).unsqueeze(1)
        mask = q[..., :1] > 0  # here
        q = F.scaled_dot_product_attention(q, q, q, attn_mask=mask)
        return self.last(q.flatten(1))


class Grouped(Base):
    def __init__(self):
        super().__init__()
        self.filter = nn.Conv1d(2, 2, 1, groups=2)

    def forward(self, x):
        x = self.filter(self.first(x).view(-1, 2, 2))  # here
        return self.last(x.flatten(1))


class OverTheBatch(Base):
    def forward(self, x):
        x = self.first(x)
        x = x - x.mean(0)  # here
        return self.last(x)


class Steep(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, gradient):
        return gradient * 10


class OwnGradient(Base):
    def forward(self, x):
        return self.last(Steep.apply(self.first(x)))


class Hooked(Base):
    def __init__(self):
        super().__init__()
        self.first.weight.register_hook(lambda gradient: gradient.clamp(-1e3, 1e3))

    def forward(self, x):
        return self.last(self.first(x))


class OtherwiseInEvaluation(Base):
    def forward(self, x):
        x = self.first(x)
        return self.last(x * 2 if self.training else x)


class BySizeOfBatch(Base):
    def forward(self, x):
        return self.last(self.first(x) * (2 if x.size(0) > 3 else 1))


class AlwaysDropping(Base):
    def forward(self, x):
        return self.last(F.dropout(self.first(x), 0.5))


class Counting(Base):
    def __init__(self):
        super().__init__()
        self.register_buffer("count", torch.zeros(()))

    def forward(self, x):
        self.count += 1
        return self.last(self.first(x))


class WithoutGradient(Base):
    def forward(self, x):
        with torch.no_grad():
            x = self.first(x)  # here
        return self.last(x)


class Random(Base):
    def forward(self, x):
        x = self.first(x) + torch.randint(0, 5, (4,))  # here
        return self.last(x)


class Sized(Base):
    def forward(self, x):
        return self.last(self.first(x).reshape(len(x), 4))


class Packed(Base):
    def __init__(self):
        super().__init__()
        self.reader = nn.LSTM(4, 4, batch_first=True)

    def forward(self, x):
        lengths = (x[:, 0] > 0).long() + 1
        steps = nn.utils.rnn.pack_padded_sequence(
            self.first(x).view(-1, 1, 4).expand(-1, 2, -1), lengths, True, False
        )
        _, (h, _c) = self.reader(steps)  # here
        return self.last(h[-1])


class WidelyPadded(Base):
    def __init__(self):
        super().__init__()
        self.filter = nn.Conv1d(1, 1, 2, padding=2)

    def forward(self, x):
        x = self.filter(x.unsqueeze(1))  # here
        return self.last(self.first(x[:, 0, :4]))


class Normalising(Base):
    def forward(self, x):
        x = self.first(x)
        x = x - x.mean()  # here
        return self.last(x)


class Siamese(Base):
    def __init__(self):
        super().__init__()
        self.reader = nn.GRU(4, 4, batch_first=True)

    def forward(self, x):
        x = self.first(x).unsqueeze(1)
        h = [self.reader(one)[1][-1] for one in (x, -x)]  # here
        return self.last(h[0] - h[1])


class OfSeveralShapes(Base):
    def forward(self, x):
        y = self.first(x.unsqueeze(1)).sum(1)
        return self.last(y + self.first(x))


class OfTwoMasks(Base):
    def forward(self, x):
        x = torch.where((x > 0) & (x < 1), x, -x)  # here
        return self.last(self.first(x))


class Rooted(Base):
    def forward(self, x):
        return self.last(self.first(x - x).mul(0).sqrt())


class Halved(Base):
    def __init__(self):
        super().__init__()
        self.spare = nn.Parameter(torch.randn(4, 6))

    def forward(self, x):
        return self.last(self.first(x @ self.spare[:, :4]))


class Larger(Base):
    def forward(self, x):
        x = torch.maximum(self.first(x), x)  # here
        return self.last(x)


class Bent(Base):
    def __init__(self):
        super().__init__()
        self.bend = nn.PReLU()

    def forward(self, x):
        x = self.bend(self.first(x))  # here
        return self.last(x)


REFUSED: dict[type, str] = {
    Siamese: "reader.l0 reads several sequences (HERE); give them as one input, (rows, sequences",
    OfSeveralShapes: "first is used on tensors of several shapes (",
    OfTwoMasks: "ampsim has no node for __and__ (HERE); multiply both as floats, or make the mask",
    Rooted: "the gradient of first.weight of a batch of 20 is no finite number in PyTorch; take",
    NowAndThen: "random numbers are drawn in Python or NumPy, and the first would stand for all",
    OfASize: "how many items a batch has is calculated with (HERE); leave that to the loss",
    Halved: "a part of spare has no effect on the loss; make it smaller",
    Larger: "ampsim has no node for maximum (HERE); take a + F.relu(b - a)",
    Bent: "ampsim has no node for prelu (HERE); take nn.LeakyReLU",
    Summing: "ampsim has no node for cumsum (HERE); write that part as a node of your own",
    SoftmaxOverTheBatch: "a softmax is over the batch (HERE); take dim=-1",
    ChosenByValue: "gt is by numbers that learn (HERE); choose by the data, multiply, or take F.r",
    PlacesInTheBatch: "numbers follow from the place in the batch (HERE); make them an input",
    Branching: "control flow reads values (HERE); compute both ways",
    Normalised: "ampsim has no node for batch_norm (HERE); statistics of a batch mean something",
    Tied: "last.weight is used by several operations that cannot be one node (HERE); ampsim ties",
    TiedInUse: "first.weight is used by several operations that cannot be one node (HERE); ampsim",
    Frozen: "first.weight does not require a gradient, and ampsim trains every parameter",
    FixedBatch: "torch.export cannot record it (HERE): RuntimeError: shape '[20, 4]' is invalid",
    Conditional: "cumsum has no rule beside torch.cond, while_loop and scan (HERE); take it out",
    CountingBeside: "add_ has no rule beside torch.cond, while_loop and scan (HERE); take it out",
    Uneven: "torch.cond, while_loop or scan cannot be recorded (HERE); let both branches, and each",
    Unused: "parameter spare.weight has no effect on the loss; take it out of the module",
    InPlace: "fill_ changes a tensor in place (HERE); make a new one",
    BatchSecond: "the batch is not where this lstm expects it (HERE); pass batch_first=True",
    Masked: "gt is by numbers that learn (HERE); choose by the data, multiply, or take F.relu",
    Grouped: "a convolution has dilation or groups, or is transposed (HERE); take nn.Conv2d with",
    OwnGradient: "the gradient of first.weight of a batch of 20 is not PyTorch's in evaluation;",
    Hooked: "first.weight has a hook on its gradient, which is not taken over; leave register_",
    OtherwiseInEvaluation: "the loss of a batch of 20 is not PyTorch's in evaluation; torch.export",
    BySizeOfBatch: "the loss of a batch of 20 is not PyTorch's in evaluation; torch.export",
    AlwaysDropping: "the loss of a batch of 20 is not PyTorch's in evaluation; torch.export",
    Counting: "buffer count changes with each batch, and to_torch would give it back as it was",
    WithoutGradient: "no rule for torch.wrap_with_set_grad_enabled (HERE); let gradients pass,",
    Random: "ampsim has no node for randint (HERE); draw it with the data, and make it an input",
    Sized: "the module's own numbers fix the batch at 2; use x.size(0), or -1, instead of",
    Packed: "a sequence is packed (HERE); give sequences of one length instead of packed ones",
    WidelyPadded: "filter: padding must be from 0 to 0 x 1 for a kernel of 1 x 2, got 0 x 2 (HERE)",
    Normalising: "ampsim has no node for mean (HERE); leave the mean over the batch to the loss",
    OverTheBatch: "a mean is over the batch (HERE); leave the mean over the batch to the loss",
}

DRAWN = torch.Generator().manual_seed(0)
X, Y = torch.randn(40, 4, generator=DRAWN), torch.randint(0, 3, (40,), generator=DRAWN)


def imported(module: Any, **changes: Any) -> Any:
    given: dict[str, Any] = {
        "module": module,
        "example_inputs": X[:20],
        "loss": nn.CrossEntropyLoss(),
        "data": ((X, Y), (X, Y)),
        "optimizer": torch.optim.SGD(
            NET.parameters() if isinstance(module, type) else module.parameters(), 0.1
        ),
    }
    return ampsim.from_torch(**{**given, **changes})


def place(kind: type) -> tuple[str, int]:
    """File and line of the comment "here" in a class; line 0 where there is none."""
    lines, first = inspect.getsourcelines(kind)
    marked = [first + i for i, line in enumerate(lines) if "# here" in line]
    return str(Path(__file__)), marked[0] if marked else 0


@pytest.mark.parametrize("kind", REFUSED, ids=lambda kind: kind.__name__)
def test_a_refusal_names_operation_line_and_remedy(kind, capfd):
    torch.manual_seed(0)  # a dropped loss is not, by chance, nearly the whole one
    with pytest.raises(GraphError) as caught:
        imported(kind())
    said = str(caught.value)
    before, _here, after = REFUSED[kind].partition("HERE")
    file, line = place(kind)
    assert said.startswith(f"{kind.__name__}: {before}")
    if line:
        assert said.startswith(f"{kind.__name__}: {before}{file}, line {line}")
    assert after in said
    assert "\n" not in said and len(said) < 420
    assert capfd.readouterr() == ("", "")  # PyTorch's own account is not shown


def test_each_part_of_a_module_stays_in_its_mode_and_has_no_gradient():
    module = nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5), nn.Linear(4, 3))
    module[1].eval()
    model = imported(module)
    assert [one.training for one in module.modules()] == [True, True, False, True]
    assert "dropout" not in str([node.name for node in model.graph().nodes])
    assert module[0].weight.grad is None


def test_a_failed_import_leaves_module_and_tensors_as_they_were():
    module = Branching()
    module.eval()
    with pytest.raises(GraphError):
        imported(module)
    assert not module.training
    imported(Good())


class Good(Base):
    def forward(self, x):
        return self.last(self.first(x))


PLACE = re.compile(r" \([^()]+, line \d+\)")
NET, FROZEN, EVEN = nn.Linear(4, 3), Frozen(), nn.Conv1d(1, 1, 2, padding="same")
SGD = torch.optim.SGD


def stepped() -> Any:
    """An optimizer that trained something."""
    optimizer = torch.optim.Adam(NET.parameters())
    F.cross_entropy(NET(X), Y).backward()
    optimizer.step()
    return optimizer


def scheduled() -> Any:
    """An optimizer whose rate a scheduler changes."""
    optimizer = SGD(NET.parameters(), 0.1)
    torch.optim.lr_scheduler.LambdaLR(optimizer, lambda epoch: 0.5**epoch)
    return optimizer


SPLITS = (
    "each split of data must be a tuple of tensors (inputs, target), a Dataset, or a list or "
    "DataLoader of batches (inputs, target)"
)
WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "a scheduler": (
        {"optimizer": scheduled()},
        "optimizer must have no scheduler, for its rates are not taken over; give one of ampsim.op",
    ),
    "two heads": (
        {"loss": lambda output, target: F.cross_entropy(output, target) + output.sum(1)[0]},
        "Linear: the loss is scaled, or added to; let a cross-entropy or a squared error be all",
    ),
    "a distance": (
        {"loss": lambda output, target: F.smooth_l1_loss(output, output * 2)},
        "Linear: ampsim has no node for smooth_l1_loss; take nn.MSELoss() or nn.CrossEntropyLoss()",
    ),
    "another method": (
        {"optimizer": torch.optim.RMSprop(NET.parameters())},
        "optimizer must be one of torch.optim's SGD or Adam, or of ampsim.optim, got RMSprop",
    ),
    "the parameters that learn": (
        {"module": FROZEN, "optimizer": SGD([FROZEN.last.weight, FROZEN.last.bias], 0.1)},
        "Frozen: first.weight does not require a gradient, and ampsim trains every parameter",
    ),
    "an option of it": (
        {"optimizer": torch.optim.Adam(NET.parameters(), amsgrad=True)},
        "optimizer Adam: amsgrad must be False, got True; leave it out",
    ),
    "some parameters": (
        {"optimizer": SGD(list(NET.parameters())[:1], 0.1)},
        "optimizer must train all 2 parameters of the module in one group, got 1 in 1",
    ),
    "one split": ({"data": (X, Y)}, "each split of data must be a tuple of tensors"),
    "no splits": ({"data": X}, "data must be (train, valid)"),
    "no target": ({"data": ((X,), (X,)), "example_inputs": (X, Y, X)}, "data must have an array"),
    "another width": (
        {"example_inputs": X[:20, :2]},
        "array 0 of data must have items of shape (2,), as the example has, got 40 of (4,)",
    ),
    "a part without a line of the user's": (
        {"module": nn.Sequential(nn.Unflatten(1, (1, 4)), EVEN, nn.Flatten())},
        "Sequential: ampsim has no node for constant_pad_nd, a part of conv1d (in 1); give a conv",
    ),
    "no items": (
        {"data": ((X[:0], Y[:0]), (X, Y))},
        "array 0 of data must have items of shape (4,), as the example has, got 0 of (4,)",
    ),
    "batches that are dictionaries": (
        {"data": ([{"x": X, "y": Y}], [{"x": X, "y": Y}])},
        f"{SPLITS}, got list: a batch is a dict; DataLoader has batch_size and collate_fn",
    ),
    "items in place of batches": (
        {"data": ([(X[0], Y[0]), (X[1], Y[1])], [(X[0], Y[0])])},
        f"{SPLITS}, got list: a batch is a single item; DataLoader has batch_size and collate_fn",
    ),
    "a penalty on weights": (
        {"loss": lambda output, target: F.cross_entropy(output, target) + (NET.weight**2).sum()},
        "Linear: sum is over all axes, as of a parameter w; decay of weights into the optimizer",
    ),
    "data that are no numbers": (
        {"data": ((X * float("nan"), Y), (X, Y))},
        "Linear: the loss of a batch of 20 is no finite number in PyTorch; take NaN out of",
    ),
    "labels from 1": (
        {"data": ((X, Y + 1), (X, Y))},
        "the target in train must be whole numbers from 0 to 2, one for each class, got int64 from",
    ),
    "smoothing": (
        {"loss": nn.CrossEntropyLoss(label_smoothing=0.1)},
        "Linear: the loss has label_smoothing",
    ),
    "a sum for a loss": (
        {"loss": nn.CrossEntropyLoss(reduction="sum")},
        "Linear: the loss has reduction",
    ),
    "another loss": (
        {"loss": lambda output, target: (output.sum(1) - target).abs().mean(0)},
        "Linear: a mean is over the batch; leave the mean over the batch to the loss",
    ),
    "half a loss": (
        {"loss": lambda output, target: 0.5 * F.cross_entropy(output, target)},
        "Linear: the loss is scaled, or added to; let a cross-entropy or a squared error be all",
    ),
    "labels that are calculated": (
        {"loss": lambda output, target: F.cross_entropy(output, 2 - target)},
        "Linear: whole numbers are calculated with; do that before, in the data",
    ),
    "a target that learns": (
        {"loss": lambda output, target: F.mse_loss(output, output * 0.5)},
        "Linear: both operands of a squared error learn; give it the data's target",
    ),
    "an optimizer that took a step": (
        {"optimizer": stepped()},
        "optimizer must have taken no step, for what it keeps of gradients is not taken over",
    ),
    "no loss": (
        {"loss": lambda output, target: output.mean(1).mean(0) + 0 * target[0]},
        "Linear: a mean is over the batch; leave the mean",
    ),
    "a class for a loss": (
        {"loss": nn.CrossEntropyLoss},
        "loss must be a function of output and target, such as nn.CrossEntropyLoss(), got <class",
    ),
    "a number for a loss": ({"loss": 3}, "loss must be a function of output and target"),
    "a number for inputs": ({"example_inputs": 3}, "example_inputs must be a tensor"),
    "an option that is none": ({"frog": 3}, "no option named 'frog'"),
    "a scale of an accuracy": ({"error_scale": 2.0}, "error_scale has no effect on a classifier"),
    "no batch": ({"batch": 0}, "batch must be a whole number >= 1, got 0"),
}


@pytest.mark.parametrize("what", WRONG)
def test_a_wrong_argument_is_told_in_a_line(what):
    changes, said = WRONG[what]
    with pytest.raises(AmpsimError) as caught:
        imported(**{"module": NET, **changes})
    told = str(caught.value)
    assert PLACE.sub("", told).startswith(said)
    assert "\n" not in told
    code = getattr(changes.get("loss"), "__code__", None)
    if code is not None:
        assert f" ({__file__}, line {code.co_firstlineno})" in told


def test_what_is_no_module_is_told():
    with pytest.raises(OptionError, match=r"module must be a torch.nn.Module, got type; try Net"):
        imported(Good)


def test_half_precision_is_refused():
    with pytest.raises(OptionError, match="must all be float32 or all float64, got bfloat16"):
        imported(nn.Linear(4, 3).bfloat16())
