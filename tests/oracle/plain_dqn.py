"""Deep Q-learning in a grid world as plain loops: what `models/dqn.py` is held to.

It shares the streams of random numbers with it, and nothing else.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ampsim.rng import stream

GOAL, PITS = (3, 3), {(1, 1), (2, 3)}
STARTS = [
    (row, column)
    for row in range(4)
    for column in range(4)
    if (row, column) != GOAL and (row, column) not in PITS
]
WAYS = [(-1, 0), (1, 0), (0, -1), (0, 1)]

Cell = tuple[int, int]
Weights = dict[str, np.ndarray]


def reward(cell: Cell) -> float:
    return 1.0 if cell == GOAL else -1.0 if cell in PITS else -0.04


def moved(cell: Cell, way: int) -> Cell:
    """Where one comes to; walls hold one back."""
    row, column = cell[0] + WAYS[way][0], cell[1] + WAYS[way][1]
    return min(max(row, 0), 3), min(max(column, 0), 3)


def blown(cell: Cell, action: int, wind: int, slip_percent: int) -> Cell:
    return moved(cell, int(wind) % 4 if int(wind) // 4 < slip_percent else action)


def values(weights: Weights, cell: Cell) -> np.ndarray:
    """What each action is worth, and what the hidden layer was."""
    hidden = np.maximum(
        weights["linear-1.weight"][4 * cell[0] + cell[1]] + weights["linear-1.bias"], 0
    )
    return hidden @ weights["linear-2.weight"] + weights["linear-2.bias"]


def slopes(weights: Weights, target: Weights, rows: list[dict[str, Any]]) -> Weights:
    """The gradient of the mean square of what the network is off, by one experience each."""
    total = {key: np.zeros_like(value) for key, value in weights.items()}
    for had in rows:
        place = 4 * had["cell"][0] + had["cell"][1]
        sums = weights["linear-1.weight"][place] + weights["linear-1.bias"]
        hidden = np.maximum(sums, 0)
        value = values(weights, had["cell"])[had["action"]]
        best = values(target, had["next"]).max()
        slope = 2 * (value - had["reward"] - had["discount"] * best) / len(rows)
        back = slope * weights["linear-2.weight"][:, had["action"]] * (sums > 0)
        total["linear-2.weight"][:, had["action"]] += slope * hidden
        total["linear-2.bias"][had["action"]] += slope
        total["linear-1.weight"][place] += back
        total["linear-1.bias"] += back
    return total


class PlainAgent:
    """What a run of the model does, step by step.

    Attributes:
        weights: of the network now.
        decisions: of each step, in the order of the model's text: exploring, ended, cut (None where
            that is not asked), learned, copied.
        lengths: of each validation, after how many steps its last episode was over.
    """

    def __init__(self, config: Any, weights: Weights, seed: int) -> None:
        self.config, self.seed = config, seed
        self.weights = {key: value.copy() for key, value in weights.items()}
        self.target = {key: np.zeros_like(value) for key, value in weights.items()}
        self.mean = {key: np.zeros_like(value) for key, value in weights.items()}
        self.square = {key: np.zeros_like(value) for key, value in weights.items()}
        self.count = self.step_number = self.age = self.validations = 0
        self.cell: Cell = (0, 0)
        empty = {"cell": (0, 0), "action": 0, "reward": 0.0, "next": (0, 0), "discount": 0.0}
        self.database = [dict(empty) for _ in range(config.capacity)]
        self.decisions: list[tuple[bool | None, ...]] = []
        self.lengths: list[int] = []

    def draw(self, name: str, draw: int, *iterations: int) -> np.random.Generator:
        return stream(self.seed, name, self.step_number, draw, *iterations)

    def step(self) -> float:
        """Act once, and learn where it is time to; the reward."""
        config, number = self.config, self.step_number
        chance = 1 - (1 - config.explore) * number / config.explore_steps
        chance = chance if number < config.explore_steps else config.explore
        explores = bool(self.draw("agent", 1).random() < chance)
        if explores:
            action = int(self.draw("agent", 2).integers(4))
        else:
            action = int(values(self.weights, self.cell).argmax())
        wind = int(self.draw("environment", 1).integers(400))
        after = blown(self.cell, action, wind, config.slip_percent)
        before, learned = dict(self.weights), self.learned()
        ends = after == GOAL or after in PITS
        row = self.database[number % config.capacity]
        row |= {"cell": self.cell, "action": action, "reward": reward(after)}
        row |= {"discount": 0.0} if ends else {"next": after, "discount": config.discount}
        is_cut = None if ends else self.age + 1 >= config.episode_steps
        if ends or is_cut:
            chosen = self.draw("environment", 3 if ends else 2).integers(len(STARTS))
            self.cell, self.age = STARTS[int(chosen)], 0
        else:
            self.cell, self.age = after, self.age + 1
        copies = number % config.copy_every == 0
        if copies:
            self.target = before
        self.decisions.append((explores, ends, is_cut, learned, copies))
        self.step_number += 1
        return reward(after)

    def learned(self) -> bool:
        """Take a step of learning from what the database had before; whether it is time for one."""
        config, number = self.config, self.step_number
        if number < config.learn_from or number % config.learn_every:
            return False
        known = min(number, config.capacity)
        places = self.draw("sampling", 1).integers(known, size=config.batch)
        found = slopes(self.weights, self.target, [self.database[place] for place in places])
        self.count += 1
        for key, slope in found.items():
            self.mean[key] = 0.9 * self.mean[key] + 0.1 * slope
            self.square[key] = 0.999 * self.square[key] + 0.001 * slope**2
            mean = self.mean[key] / (1 - 0.9**self.count)
            root = np.sqrt(self.square[key] / (1 - 0.999**self.count))
            self.weights[key] = self.weights[key] - config.learning_rate * mean / (root + 1e-8)
        return True

    def validate(self) -> tuple[float, float]:
        """An episode from each first cell: the mean reward, and how many reach the goal."""
        config, cells, total = self.config, list(STARTS), 0.0
        over = [False] * len(cells)
        draw = self.validations
        self.validations += 1
        length = 0
        while length < config.episode_steps and not all(over):
            draws = [stream(self.seed, "validation", draw, which, length) for which in (1, 2, 3)]
            chances, ways, winds = (
                draws[0].random(len(cells)),
                draws[1].integers(4, size=len(cells)),
                draws[2].integers(400, size=len(cells)),
            )
            for place, cell in enumerate(cells):
                if over[place]:
                    continue
                explores = chances[place] < config.valid_explore
                action = ways[place] if explores else values(self.weights, cell).argmax()
                cells[place] = after = blown(cell, int(action), winds[place], config.slip_percent)
                total += reward(after)
                over[place] = after == GOAL or after in PITS
            length += 1
        self.lengths.append(length)
        return total / len(cells), cells.count(GOAL) / len(cells)


def expected_reward(slip_percent: int, steps: int, policy: str) -> float:
    """The mean reward of an episode over its first cells, by dynamic programming.

    Args:
        slip_percent: of steps, in which the agent goes anywhere.
        steps: after which an episode is cut.
        policy: "random", each action as likely as any other, or "best", the one of most reward.
    """
    slips = slip_percent / 100
    left = dict.fromkeys(STARTS, 0.0)
    for _ in range(steps):
        after = {
            cell: [reward(to) + left.get(to, 0.0) for to in (moved(cell, way) for way in range(4))]
            for cell in STARTS
        }
        left = {
            cell: (
                float(np.mean(gains))
                if policy == "random"
                else slips * float(np.mean(gains)) + (1 - slips) * max(gains)
            )
            for cell, gains in after.items()
        }
    return float(np.mean(list(left.values())))
