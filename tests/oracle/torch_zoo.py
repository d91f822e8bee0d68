"""Networks as PyTorch users write them, with data to learn from; what is imported in tests."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from torch_oracle import torch

from ampsim.ir import Direction

nn, F = torch.nn, torch.nn.functional
WORDS, TAGS, STEPS, PIXELS = 30, 5, 4, 16


class Mlp(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1 = nn.Linear(PIXELS, 12)
        self.fc2 = nn.Linear(12, 12, bias=False)
        self.out = nn.Linear(12, TAGS)

    def forward(self, x):
        x = F.relu(self.fc1(x))
        x = torch.tanh(self.fc2(x)) * 0.5 + x
        return self.out(x)


class LeNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(1, 3, 3, padding=1),
            nn.ReLU(inplace=True),
            nn.MaxPool2d(2),
            nn.Conv2d(3, 4, kernel_size=(3, 1), stride=(2, 1), bias=False),
            nn.MaxPool2d(2, stride=1),
            nn.Flatten(),
        )
        self.classifier = nn.Linear(20, TAGS)

    def forward(self, x):
        return F.log_softmax(self.classifier(self.features(x)), dim=1)


class LstmTagger(nn.Module):
    """After PyTorch's tutorial "Sequence models and LSTM networks"."""

    def __init__(self):
        super().__init__()
        self.word_embeddings = nn.Embedding(WORDS, 8, padding_idx=0)
        self.lstm = nn.LSTM(8, 7, batch_first=True)
        self.hidden2tag = nn.Linear(7, TAGS)

    def forward(self, sentence):
        embeds = self.word_embeddings(sentence)
        lstm_out, _ = self.lstm(embeds)
        return self.hidden2tag(lstm_out)


class GruLabeller(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(WORDS, 8)
        self.gru = nn.GRU(8, 7)
        self.fc = nn.Linear(7, TAGS)

    def forward(self, x):
        _, hidden = self.gru(self.embedding(x).transpose(0, 1))
        return self.fc(hidden[-1])


class CharCnn(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(WORDS, 8)
        self.convs = nn.ModuleList(nn.Conv1d(8, 4, width) for width in (2, 3))
        self.fc = nn.Linear(8, TAGS)

    def forward(self, x):
        x = self.embedding(x).permute(0, 2, 1)
        first, second = (F.relu(conv(x)) for conv in self.convs)
        pooled = [first.max(dim=2).values, F.max_pool1d(second, second.size(2)).squeeze(2)]
        return self.fc(torch.cat(pooled, dim=1))


class BiLstm(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(WORDS, 8)
        self.lstm = nn.LSTM(8, 5, num_layers=2, bidirectional=True, batch_first=True)
        self.fc = nn.Linear(20, TAGS)

    def forward(self, x):
        out, (h, _c) = self.lstm(self.embedding(x))
        return self.fc(torch.cat([h[-2], h[-1], out.mean(dim=1)], dim=1))


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(WORDS, 8)
        self.positions = nn.Parameter(0.1 * torch.randn(1, STEPS, 8))
        layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.fc = nn.Linear(8, TAGS)

    def forward(self, x):
        x = self.embedding(x) * 8**0.5 + self.positions[:, : x.size(1)]
        return self.fc(self.encoder(x).mean(dim=1))


class CellLoop(nn.Module):
    """A loop in Python over cells that are modules, and a layer that is used twice."""

    def __init__(self):
        super().__init__()
        self.cell = nn.LSTMCell(PIXELS // 4, 6)
        self.gate = nn.GRUCell(6, 6)
        self.twice = nn.Linear(6, 6)
        self.out = nn.Linear(6, TAGS)

    def forward(self, x):
        h, c = x.new_zeros(x.size(0), 6), x.new_zeros(x.size(0), 6)
        g = torch.zeros(x.size(0), 6, dtype=x.dtype)
        seen = []
        for part in x.chunk(4, dim=1):
            h, c = self.cell(part, (h, c))
            g = self.gate(h, g)
            seen.append(g)
        whole = torch.stack(seen, dim=1).amax(dim=1)
        return self.out(self.twice(torch.sigmoid(self.twice(whole))) - F.silu(h))


class RootMeanSquare(nn.Module):
    """As models have it that are older than nn.RMSNorm."""

    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.rand(width) + 0.5)

    def forward(self, x):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * self.weight


class Gpt(nn.Module):
    """A block after minGPT, which computes attention by hand, with a mask that is a buffer."""

    def __init__(self):
        super().__init__()
        self.token, self.position = nn.Embedding(WORDS, 8), nn.Embedding(STEPS, 8)
        self.before, self.between, self.last = nn.RMSNorm(8), RootMeanSquare(8), nn.RMSNorm(8)
        self.attend, self.project = nn.Linear(8, 24, bias=False), nn.Linear(8, 8)
        self.mlp = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 8))
        self.head = nn.Linear(8, TAGS, bias=False)
        self.register_buffer("seen", torch.tril(torch.ones(9, 9)).view(1, 1, 9, 9))

    def attention(self, x):
        rows, steps, width = x.size()
        heads = [one.view(rows, steps, 2, 4).transpose(1, 2) for one in x.split(width // 3, dim=2)]
        q, k, v = heads
        fit = q @ k.transpose(-2, -1) / 2
        fit = fit.masked_fill(self.seen[:, :, :steps, :steps] == 0, float("-inf"))
        y = F.softmax(fit, dim=-1) @ v
        return y.transpose(1, 2).contiguous().view(rows, steps, -1)

    def forward(self, words):
        places = torch.arange(words.size(1)).unsqueeze(0).expand(words.size(0), -1)
        x = self.token(words) + self.position(places)
        x = x + self.project(self.attention(self.attend(self.before(x))))
        return self.head(self.last(x + self.mlp(self.between(x))))


class Padded(nn.Module):
    """Word 0 stands for none: attention does not see it, and the mean is without it."""

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(WORDS, 8, padding_idx=0)
        self.attention = nn.MultiheadAttention(8, 2, batch_first=True)
        self.fc = nn.Linear(8, TAGS)

    def forward(self, words):
        x = self.embedding(words)
        x, _weights = self.attention(x, x, x, key_padding_mask=words == 0)
        is_word = (words != 0).unsqueeze(-1).to(x.dtype)
        return self.fc((F.silu(x) * is_word).sum(1) / is_word.sum(1).clamp(min=1))


class Shared(nn.Module):
    """One layer under three names, and functions of all kinds between."""

    def __init__(self):
        super().__init__()
        layer = nn.Linear(PIXELS, PIXELS)
        self.layers = nn.ModuleList([layer] * 3)
        self.norm, self.out = nn.LayerNorm(PIXELS, bias=False), nn.Linear(PIXELS, TAGS)
        self.scale = nn.Parameter(torch.full((PIXELS,), 0.5))

    def forward(self, x):
        for layer, function in zip(self.layers, (F.leaky_relu, F.elu, F.softplus), strict=True):
            x = x + self.scale * function(layer(x))
        x = (x - x.mean(-1, keepdim=True)) / (x.std(-1, keepdim=True) + 1e-3)
        return F.log_softmax(self.out(F.normalize(self.norm(x), dim=-1) * 3), dim=-1)


def by_token(output, target):
    return F.cross_entropy(output.reshape(-1, TAGS), target.reshape(-1))


def by_class_axis(output, target):
    return F.cross_entropy(output.transpose(1, 2), target)


class Network(NamedTuple):
    make: Callable[[], Any]
    loss: Any
    inputs: Callable[[int], Any]
    target: Callable[[int], Any]


def words(count: int) -> Any:
    return torch.randint(0, WORDS, (count, STEPS))


def label(count: int) -> Any:
    return torch.randint(0, TAGS, (count,))


def tags(count: int) -> Any:
    return torch.randint(0, TAGS, (count, STEPS))


def pixels(count: int) -> Any:
    return torch.randn(count, PIXELS, dtype=torch.float64)


def images(count: int) -> Any:
    return torch.randn(count, 1, 12, 12, dtype=torch.float64)


NETWORKS: dict[str, Network] = {
    "mlp": Network(Mlp, nn.CrossEntropyLoss(), pixels, label),
    "regression": Network(
        lambda: nn.Sequential(nn.Linear(PIXELS, 9), nn.Tanh(), nn.Linear(9, 3)),
        nn.MSELoss(),
        pixels,
        lambda count: torch.randn(count, 3, dtype=torch.float64),
    ),
    "lenet": Network(LeNet, nn.NLLLoss(), images, label),
    "lstm tagger": Network(LstmTagger, by_token, words, tags),
    "lstm tagger, classes second": Network(LstmTagger, by_class_axis, words, tags),
    "gru labeller": Network(GruLabeller, nn.CrossEntropyLoss(), words, label),
    "character cnn": Network(CharCnn, nn.CrossEntropyLoss(), words, label),
    "two-layer bilstm": Network(BiLstm, nn.CrossEntropyLoss(), words, label),
    "transformer encoder": Network(Encoder, nn.CrossEntropyLoss(), words, label),
    "gpt": Network(Gpt, by_token, words, tags),
    "padded": Network(Padded, nn.CrossEntropyLoss(), words, label),
    "shared": Network(Shared, nn.NLLLoss(), pixels, label),
    "loop over cells": Network(CellLoop, nn.CrossEntropyLoss(), pixels, label),
}


class Case(NamedTuple):
    """A module in double precision, its loss, an optimizer, and (train, valid)."""

    module: Any
    loss: Any
    optimizer: Any
    data: Any


METHODS: dict[str, Callable[[Any], Any]] = {
    "adam": lambda p: torch.optim.Adam(p, 0.02),
    "adam with decay": lambda p: torch.optim.Adam(p, 0.02, (0.8, 0.99), 1e-3, 0.01),
    "sgd": lambda p: torch.optim.SGD(p, 0.1, momentum=0.9, nesterov=True),
}
"""With decay, epsilon is large. The bias of keys has no effect on attention: its gradient is what
rounding leaves, and the decay of what that made of the bias. Far below an epsilon of 1e-8, Adam's
step is rate · decay / epsilon = 2e4 times the bias, and multiplies any difference by that."""


def case(name: str) -> Case:
    torch.manual_seed(0)
    network = NETWORKS[name]
    module = network.make().double()
    data = tuple((network.inputs(count), network.target(count)) for count in (30, 8))
    return Case(module, network.loss, METHODS["adam"](module.parameters()), data)


def served(model: Any, batch: Any) -> tuple[Any, dict[str, Any]]:
    """The prediction and all gradients of one batch, messages taken first come, first served."""
    graph = model.graph()
    queue = [
        (Direction.FORWARD, *graph.targets[0][port], state, payload)
        for port, state, payload in model.pump(7, batch)
    ]
    prediction = None
    while queue:
        direction, place, port, state, payload = queue.pop(0)
        node = graph.nodes[place]
        if place == 0:
            continue
        if node.is_loss and port == 0:
            prediction = payload
        forward = direction is Direction.FORWARD
        sends = (node.forward if forward else node.backward)(port, state, payload)
        goes_back = not forward or node.is_loss
        partners = graph.sources[place] if goes_back else graph.targets[place]
        direction = Direction.BACKWARD if goes_back else Direction.FORWARD
        queue += [(direction, *partners[out], s, sent) for out, s, sent in sends]
    assert not [node.name for node in graph.nodes if list(node.pending())]
    gradients = {
        f"{node.name}.{name}": part
        for node in graph.parameterized
        for name, part in node.views(node.take_gradient()).items()
    }
    return prediction, gradients
