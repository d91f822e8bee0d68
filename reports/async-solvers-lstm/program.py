"""Figures 5 to 7 of Wongpanich, You and Demmel: an LSTM on MNIST, Sync SGD and EA-wild."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd

import ampsim
from ampsim.recipes.programs import Curves

TITLE = "The LSTM of Figures 5 to 7: Sync SGD against EA-wild on 2, 4 and 8 workers"
TEXT = """
Figures 5 to 7 of Wongpanich, You and Demmel (HPC Asia 2020), Section 4.5.3: an LSTM reads the 28
rows of an image of MNIST, through a transform of 28 to 128, with a hidden state of 128; Adam, 50
epochs, a global batch of 8192 of 60,000 images. With two workers and four EA-wild is slightly
behind sync, with eight clearly; on four sync ends at 98.6 %, EA-wild at 96.5, and the baseline
with batches of 256 at 98.7.

**The same model, optimizer and epochs are here, on fewer images**: 2,000 of the 60,000, and a
global batch of 272, so that an epoch has 7.4 updates as it has 7.3 there, and 50 epochs 368. Each
of P workers has a P-th of the batch. The rate of Adam, of which the paper says nothing, is 0.001
in all rows and was not tuned; the moving rate is 0.9 / P, as Zhang, Choromanska and LeCun (2015)
recommend, as of the paper's elastic strength nothing is known. Validation is on 1,000 test
images. Sync learns the same on any number of workers but for rounding, and stands once. One seed,
which ranks nothing; that is what could be afforded.

**While the network learns, the paper's order is found: sync is ahead, and EA-wild is the further
behind the more workers it has.** After 10 epochs they have 81.2 % (sync), 73.6, 71.6 and 68.5
(two, four and eight workers), after 15 epochs 85.4, 82.7, 81.5 and 77.0. At the end they are
within a point or so, in no order: best of 50 epochs 90.7, 89.6, 90.0 and 90.2 %. With so few
images all rows fit them by then (training losses from 0.01 to 0.1), and what is left is how well
2,000 images tell of others. So the paper's gap at the end, 2.1 points, is not found, nor can its
accuracies be: they are of 60,000 images. [async-solvers-gap](../async-solvers-gap/report.md) has
six seeds of a smaller network, where the gap grows with every seed, and says why.

In images a second EA-wild is ahead of sync on four workers, by 1.11 times, with one machine more,
the server; the paper says, without a number, that sync was faster for the LSTM (Section 5).
Devices are KNL whose steps vary by 10 %, which is assumed.
"""
ROWS = (("sync", 4), ("EA-wild", 2), ("EA-wild", 4), ("EA-wild", 8))
PUBLISHED = {("sync", 4): 0.986, ("EA-wild", 4): 0.965}
"""Accuracies at the end, of 60,000 images; of the others the paper has curves alone."""

BATCH, IMAGES, VALID, EPOCHS = 272, 2_000, 1_000, 50
SHOWN = (10, 15, 50)
DATA, DTYPE = "mnist", "float32"
WITNESS = {
    "BATCH": 16,
    "IMAGES": 48,
    "VALID": 16,
    "EPOCHS": 2,
    "SHOWN": (1, 2),
    "DATA": "synthetic",
    "DTYPE": "float64",
}
CLUSTER = Path(__file__).parent.parent / "solvers-mnist" / "nine-knl.toml"
CURVES = [
    Curves(
        "figures-5-to-7", "Test accuracy of the LSTM", "by_epoch", x="epoch", y="accuracy",
        by="row", x_label="epoch", y_label="accuracy",
    ),
]  # fmt: skip


def tables() -> dict[str, pd.DataFrame]:
    """What each row came to, and each of its epochs."""
    curves: list[dict[str, Any]] = []
    rows: list[dict[str, Any]] = []
    hosts = ampsim.load_cluster(CLUSTER)
    for name, workers in ROWS:
        solver: Any = ampsim.SyncSGD if name == "sync" else ampsim.EAWild
        model = ampsim.load_model(
            "lstm_mnist", batch=BATCH // workers, valid_images=VALID, data=DATA, dtype=DTYPE
        )
        result = ampsim.simulate(
            model, hosts, solver(ranks=workers), instances=IMAGES, epochs=EPOCHS
        )
        label, epochs = f"{name}, {workers} workers", result.epochs
        curves += [
            {"row": label, "epoch": epoch, "time_s": time_s, "accuracy": accuracy, "loss": loss}
            for epoch, time_s, accuracy, loss in zip(
                epochs["epoch"], epochs["time_s"], epochs["accuracy"], epochs["loss"], strict=True
            )
        ]
        accuracies = dict(zip(epochs["epoch"], epochs["accuracy"], strict=True))
        rows.append(
            {
                "row": label,
                **{f"after_{epoch}": accuracies[epoch] for epoch in SHOWN},
                "best": epochs["accuracy"].max(),
                "published_at_the_end": PUBLISHED.get((name, workers), "a curve"),
                "images_per_s": result.train_per_s,
            }
        )
    return {"rows": pd.DataFrame(rows), "by_epoch": pd.DataFrame(curves)}
