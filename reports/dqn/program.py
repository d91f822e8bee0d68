"""Deep Q-learning in the graph and driven by a client: what is learned, and how fast."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

import ampsim
from ampsim.recipes.programs import Curves

TITLE = "Deep Q-learning in the graph, and driven by a client"
TEXT = """
`models/dqn.py`, an agent that learns in a grid world of 16 cells, as in Yu et al. (2018), Sections
2.2 and 6.5. A run of the graph is a step of the environment. In it the agent acts, what happened is
written to a database, experiences are sampled from it, and the network learns from them with the
help of the target network, a copy of it from some steps before. Conditionals decide whether to
explore, what is written, whether the episode is cut, whether to learn, and whether to copy.

**What is learned.** Ten seeds, a thousand steps of the environment each, a validation after each
hundred: an episode from each of 13 cells, in which a twentieth of the actions are random. All is in
double precision, so that another library's rounding changes no decision. An agent
that acts at random earns, in the same world with the same winds, what the last curve shows. The
best policy earns 0.81 in the mean, and one that acts at random -1.04: dynamic programming says so
exactly (`tests/oracle/plain_dqn.py`). Table *gain* has for each seed the mean reward of the last
three validations of both. Table *interval* is the median of the ten differences, between the second
lowest and the second highest of them, which hold it with a confidence of 97.9 %.

**How fast.** In the graph the host dispatches the next operator while the device computes. A client
reads each predicate, one at a time, and starts what follows; meanwhile what does not depend on it
goes on. Both learn the same, to the bit; only time differs. With E operators dispatched in a step,
h seconds each, and D decisions of r seconds, a step takes E h in the graph, and by a client no less
than the greater of E h and D r, and no more than E h + D r: the columns *lowest* and *highest* are
these bounds on the ratio. From some round trip on, each longer one adds exactly D times what it is
longer (`tests/oracle/test_dqn.py`).

**What is assumed.** The dispatch of an operator, dead ones of untaken branches included, takes 1, 5
or 20 microseconds, and a round trip what the axis says: both are chosen. The client is charged for
dead operators, too, which a client would leave out; they are a tenth of all once the agent learns,
and the ratio is too high by what they take.
Kernels take what they take on a P100, from its roofline, and hide behind the dispatch. The
environment, and the choice of random whole numbers, cost the host a dispatch and nothing else: a
real environment takes longer, and the ratio is then nearer to 1. The speed-up that the paper
measured is lost in our copy of it, so it is not shown here; what can be compared is the shape: the
graph is ahead, by more the longer the way to the client.
"""
SEEDS = range(10)
EPOCHS, LAST = 10, 3
GPU = ampsim.load_cluster("p100").devices[0]
FREE = {"operation_overhead_s": 0.0, "memory_bytes": None}  # dispatch_s is in place of the one
DOUBLE = {"dtype": "float64"}  # so that another library's rounding changes no decision
DISPATCH_S = (1e-6, 5e-6, 2e-5)
ROUND_TRIPS_S = tuple(10 ** (-5 + step / 2) for step in range(7))
HAS_WEIGHTS = False  # whether a table tells of the weights, as the rewards are too coarse a witness
WITNESS = {
    "SEEDS": range(2), "EPOCHS": 2, "LAST": 1, "DISPATCH_S": (5e-6,),
    "ROUND_TRIPS_S": (1e-5, 1e-3), "HAS_WEIGHTS": True,
}  # fmt: skip
CURVES = [
    Curves(
        "learning", "Reward of an episode, of ten seeds", "learning",
        x="steps", y="reward", by="policy",
        x_label="steps of the environment", y_label="reward of an episode",
    ),
    Curves(
        "ratio", "Steps a second in the graph, over those by a client", "speed",
        x="round_trip_s", y="ratio", by="dispatch",
        x_label="round trip to the client (s)", y_label="times as fast",
        is_log_x=True, is_log_y=True,
    ),
]  # fmt: skip


def rewards(seed: int, **options: Any) -> np.ndarray:
    """The mean reward of an episode, of each validation of a seed."""
    model = ampsim.load_model("dqn", **DOUBLE, **options)
    result = ampsim.simulate(model, "tflops-1", "dataflow", epochs=EPOCHS, seed=seed)
    return -result.epochs["valid_loss"].to_numpy()


def weights() -> pd.DataFrame:
    """How large each array of parameters is, once the first seed has learned."""
    model = ampsim.load_model("dqn", **DOUBLE)
    result = ampsim.simulate(model, "tflops-1", "dataflow", epochs=EPOCHS, seed=SEEDS[0])
    sizes = {name: np.linalg.norm(one) for name, one in result.model.parameters().items()}
    return pd.DataFrame({"name": list(sizes), "size": list(sizes.values())})


def learning_tables() -> dict[str, pd.DataFrame]:
    """The curves of both agents, what the one gains by seed, and its interval."""
    steps = ampsim.load_model("dqn").config.epoch_steps * np.arange(1, EPOCHS + 1)
    untaught = {"valid_explore": 1.0, "learn_from": 10**9, "epoch_steps": 1}
    found = {
        "learned": np.array([rewards(seed) for seed in SEEDS]),
        "at random": np.array([rewards(seed, **untaught) for seed in SEEDS]),
    }
    shown = {
        "learned, highest of ten": found["learned"].max(axis=0),
        "learned, mean": found["learned"].mean(axis=0),
        "learned, lowest of ten": found["learned"].min(axis=0),
        "at random, mean": found["at random"].mean(axis=0),
    }
    curves = [
        {"policy": policy, "steps": int(step), "reward": float(reward)}
        for policy, rewards_at in shown.items()
        for step, reward in zip(steps, rewards_at, strict=True)
    ]
    ends = {policy: values[:, -LAST:].mean(axis=1) for policy, values in found.items()}
    gain = pd.DataFrame(
        {"seed": list(SEEDS), "learned": ends["learned"], "at_random": ends["at random"]}
    )
    gain["gain"] = gain["learned"] - gain["at_random"]
    sizes = np.sort(gain["gain"].to_numpy())
    interval = {
        "median": float(np.median(sizes)), "low": float(sizes[1]), "high": float(sizes[-2]),
        "confidence": 1 - 2 * 11 / 2**10, "seeds_that_gain": int((sizes > 0).sum()),
    }  # fmt: skip
    return {
        "learning": pd.DataFrame(curves), "gain": gain, "interval": pd.DataFrame([interval]),
    }  # fmt: skip


def speed_row(dispatch_s: float, round_trip_s: float, inside: Any) -> dict[str, Any]:
    """How fast a client is beside the graph, and between which bounds that must lie."""
    schedule = ampsim.OutOfGraph(round_trip_s=round_trip_s)
    outside = timed(dispatch_s, schedule)
    train_s = float(outside.epochs["train_s"].iloc[0])
    steps = int(outside.epochs["instances"].iloc[0])
    decisions = int((outside.transfers["sent_s"] < train_s).sum()) / 2 / steps
    step_s, trips_s = 1 / inside.train_per_s, decisions * round_trip_s
    return {
        "dispatch": f"{dispatch_s * 1e6:g} us an operator", "round_trip_s": round_trip_s,
        "decisions": decisions, "dispatched": step_s / dispatch_s,
        "in_graph_per_s": inside.train_per_s, "client_per_s": outside.train_per_s,
        "ratio": inside.train_per_s / outside.train_per_s,
        "lowest": max(1.0, trips_s / step_s), "highest": 1 + trips_s / step_s,
    }  # fmt: skip


def timed(dispatch_s: float, schedule: Any) -> Any:
    """An epoch of one seed, of which half the steps learn."""
    device = GPU.model_copy(update={**FREE, "dispatch_s": dispatch_s})
    cluster = ampsim.Cluster(name="one", devices=(device,))
    return ampsim.simulate(ampsim.load_model("dqn", **DOUBLE), cluster, schedule, seed=0)


def tables() -> dict[str, pd.DataFrame]:
    """What is learned, and how fast."""
    rows: list[dict[str, Any]] = []
    for dispatch_s in DISPATCH_S:
        inside = timed(dispatch_s, "dataflow")
        rows += [speed_row(dispatch_s, one, inside) for one in ROUND_TRIPS_S]
    more = {"weights": weights()} if HAS_WEIGHTS else {}
    return {**learning_tables(), "speed": pd.DataFrame(rows), **more}
