"""Records times to the target of many seeds, whose medians are then known: run by hand.

    python tests/validation/record_times.py

It writes `times_to_target.csv` beside itself: a row for each seed, a column for each of some
schedules and learning rates of a small perceptron, seconds to the target of 200 seeds, "inf" where
a run did not get there. `test_decision_honesty.py` draws few seeds out of these, and asks whether
what is called of the few is what all of them say.
"""

from __future__ import annotations

import math
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import ampsim
from ampsim.metric import Goal
from ampsim.model_parallel import Schedule

SEEDS = 200
TARGET = 0.9
MAX_EPOCHS = 12
ROWS = {
    "sequential, 0.1": (ampsim.Sequential(), 0.1),
    "sequential, 0.05": (ampsim.Sequential(), 0.05),
    "sequential, 0.025": (ampsim.Sequential(), 0.025),
    "amp 4, 0.1": (ampsim.Amp(4), 0.1),
    "amp 4, 0.05": (ampsim.Amp(4), 0.05),
    "amp 4, 0.025": (ampsim.Amp(4), 0.025),
}


def time_s(schedule: Schedule, rate: float, seed: int) -> float:
    """Seconds to the target of one run; infinite without it."""
    model = ampsim.load_model("mlp", data="synthetic", hidden=32, batch=20, learning_rate=rate)
    cluster = ampsim.load_cluster("tflops-1", workers=4)
    made = ampsim.simulate(
        model, cluster, schedule, epochs=MAX_EPOCHS, seed=seed, target=TARGET, instances=400
    )
    place = Goal(model.measure, TARGET).reached_by(made.epochs["accuracy"])
    return math.inf if place is None else float(made.epochs["time_s"].iloc[place])


def of_seed(seed: int) -> str:
    """A line of the table."""
    times = [time_s(schedule, rate, seed) for schedule, rate in ROWS.values()]
    return ",".join([str(seed), *map(repr, times)]) + "\n"


def main() -> None:
    """Write the table."""
    with Path(__file__).with_name("times_to_target.csv").open("w", encoding="utf-8") as file:
        file.write("seed," + ",".join(f'"{name}"' for name in ROWS) + "\n")
        with ProcessPoolExecutor(2) as pool:
            for line in pool.map(of_seed, range(SEEDS)):
                file.write(line)
                file.flush()


if __name__ == "__main__":
    main()
