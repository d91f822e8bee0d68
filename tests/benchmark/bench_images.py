"""Training of the models of images against PyTorch eager, as `bench_models.py` does of the others.

    AMPSIM_DATA=... python tests/benchmark/bench_images.py [--rounds 5] [--synthetic]

Same batches, one thread, in turns; PyTorch's convolutions are oneDNN's, its LSTM is its own, which
takes all rows of an image at once. "each" updates after each batch, "amp" has 16 in flight.
"""

from __future__ import annotations

import argparse
from typing import Any

import bench_models  # first: it holds the libraries to one thread
import torch
from bench_models import Contest, compare
from torch import Tensor, nn
from torch.nn.functional import cross_entropy


class TorchLenet(nn.Module):
    """Convolutions, pools and two linear layers; an instance is (images, labels)."""

    def __init__(self, config: Any) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(1, config.filters, 5),
            nn.MaxPool2d(2),
            nn.Conv2d(config.filters, config.more_filters, 5),
            nn.MaxPool2d(2),
            nn.Flatten(),
            nn.Linear(16 * config.more_filters, config.hidden),
            nn.ReLU(),
            nn.Linear(config.hidden, 10),
        )

    @staticmethod
    def instance(batch: Any) -> Any:
        return torch.tensor(batch.images.reshape(-1, 1, 28, 28)), torch.tensor(batch.labels)

    def forward(self, instance: Any) -> Tensor:
        images, labels = instance
        return cross_entropy(self.layers(images), labels)


class TorchRows(nn.Module):
    """PyTorch's own LSTM over the rows of images; an instance is (images, labels)."""

    def __init__(self, config: Any) -> None:
        super().__init__()
        self.transform = nn.Linear(28, config.hidden)
        self.lstm = nn.LSTM(config.hidden, config.hidden, batch_first=True)
        self.classifier = nn.Linear(config.hidden, 10)

    @staticmethod
    def instance(batch: Any) -> Any:
        return torch.tensor(batch.images.reshape(-1, 28, 28)), torch.tensor(batch.labels)

    def forward(self, instance: Any) -> Tensor:
        images, labels = instance
        outputs, _last = self.lstm(self.transform(images))
        return cross_entropy(self.classifier(outputs[:, -1]), labels)


def momentum(network: nn.Module) -> list[torch.optim.Optimizer]:
    parameters = network.parameters()
    return [torch.optim.SGD(parameters, lr=0.01, momentum=0.9, weight_decay=0.0005)]


CONTESTS = {
    "lenet": Contest("lenet", TorchLenet, 3_200, 1, momentum),
    "lstm_mnist": Contest("lstm_mnist", TorchRows, 2_560, 1, bench_models.adam),
}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--synthetic", action="store_true", help="generated data, no files")
    options = parser.parse_args()
    torch.set_num_threads(1)
    bench_models.CONTESTS.update(CONTESTS)
    print(f"{'images a second':18}{'update':6}{'PyTorch':>10}{'ampsim':>10}{'ratio':>8}")
    for name in CONTESTS:
        compare(name, options.rounds, {"data": "synthetic"} if options.synthetic else {})


if __name__ == "__main__":
    main()
