"""Figure 3 of Wongpanich, You and Demmel: warm-up and two stages, with LeNet under EA-wild."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd

import ampsim
from ampsim.recipes.programs import Curves

TITLE = "Figure 3 of the solvers' paper: warm-up and two stages, LeNet under EA-wild"
TEXT = """
Figure 3 of Wongpanich, You and Demmel (HPC Asia 2020), Section 4.5.1: LeNet on MNIST. "For a
batch size beyond 2K, a straightforward implementation without careful learning rate scheduling
often leads to accuracy loss or divergence in async solvers"; so they use gradient descent during
a warm-up and Adam after it, and the caption says that the *batch* grows in the first epochs. The
figure has no numbers in the text, nor a rate, a number of workers or of epochs.

Here it is LeNet under EA-wild on four workers with 100 images each, 2,000 images of MNIST, so
that an epoch has five updates of the whole batch, and eight epochs; validation is on 1,000 test
images. Adam has one of two rates, both high for it: by itself, after two epochs of gradient
descent at 0.3, with a rate that grows from a tenth in two epochs, and with a batch that does.
Five updates an epoch stand for a batch of 12K of 60,000. **One seed, which ranks nothing**; the
table `best` has the best accuracy of each.

**That a large batch needs a warm-up is found; that two stages give it is not.** With its rate
warmed up Adam comes to 94.1 % at 0.01 and 92.8 at 0.03, from the start to 90.9 and 76.5: at 0.03
it stays below 30 % for five epochs. A batch that grows comes to 93.0 and 82.9 %, two stages to
89.1 and 69.3. Gradient descent in its place learns in its two epochs, and then Adam begins as it
would have from the start: its running means are new, its first steps are of full length, and the
accuracy falls from 59.0 % to 50.7 or 35.3 before it rises again. A rate below 0.01 did not need a
warm-up here, tried by hand: at 0.002 and 0.005 Adam from the start was ahead of two stages, with
gradient descent at 0.1, in each epoch. What the rate of the paper's stages was, and whether its
second stage was warmed up too, cannot be derived from what it says.
"""
RATES = (0.01, 0.03)
BATCH, IMAGES, VALID, EPOCHS = 100, 2_000, 1_000, 8
WARMUP = 2
DATA, DTYPE = "mnist", "float32"
WITNESS = {
    "RATES": (0.03,),
    "BATCH": 10,
    "IMAGES": 40,
    "VALID": 20,
    "EPOCHS": 2,
    "WARMUP": 1,
    "DATA": "synthetic",
    "DTYPE": "float64",
}
CLUSTER = Path(__file__).parent.parent / "solvers-mnist" / "nine-knl.toml"
CURVES = [
    Curves(
        "figure-3", "Test accuracy of LeNet on four workers", "by_epoch", x="epoch", y="accuracy",
        by="row", x_label="epoch", y_label="accuracy",
    ),
]  # fmt: skip


def ways(rate: float) -> dict[str, dict[str, Any]]:
    """Options of the model for each way to begin."""
    staged = {"optimizer": "two-stage", "learning_rate": 0.3, "second_rate": rate}
    return {
        "Adam": {"learning_rate": rate},
        "two stages": {**staged, "warmup_epochs": WARMUP},
        "Adam, rate warmed up": {"learning_rate": rate, "warmup_epochs": WARMUP},
        "Adam, batch warmed up": {"learning_rate": rate, "batch_warmup_epochs": WARMUP},
    }


def tables() -> dict[str, pd.DataFrame]:
    """Each epoch of each way, and the best accuracy."""
    curves: list[dict[str, Any]] = []
    best: dict[str, dict[str, Any]] = {}
    hosts = ampsim.load_cluster(CLUSTER)
    for rate in RATES:
        for way, options in ways(rate).items():
            chosen: dict[str, Any] = {
                "optimizer": "adam",
                "weight_decay": 0.0,
                "data": DATA,
                "dtype": DTYPE,
                **options,
            }
            model = ampsim.load_model("lenet", batch=BATCH, valid_images=VALID, **chosen)
            solver = ampsim.EAWild(ranks=4)
            result = ampsim.simulate(model, hosts, solver, instances=IMAGES, epochs=EPOCHS)
            epochs = result.epochs
            curves += [
                {"row": f"{way}, {rate}", "epoch": epoch, "accuracy": accuracy, "loss": loss}
                for epoch, accuracy, loss in zip(
                    epochs["epoch"], epochs["accuracy"], epochs["loss"], strict=True
                )
            ]
            best.setdefault(way, {"way": way})[f"Adam at {rate}"] = epochs["accuracy"].max()
    return {"best": pd.DataFrame(list(best.values())), "by_epoch": pd.DataFrame(curves)}
