"""A deep Q-network that learns in a grid world: acting, remembering and learning in one graph.

Source: Yu et al., "Dynamic Control Flow in Large-Scale Machine Learning" (2018), Sections 2.2 and
6.5 and Figure 16; the algorithm is that of Mnih et al., "Human-level control through deep
reinforcement learning" (2015), Algorithm 1. An instance is a step of the environment, and a run of
the graph. Conditionals decide in it whether to explore, what of an experience is written to the
database, whether the episode is over, whether to learn, and whether to copy the network to the
target network.

What the paper leaves open, and what is chosen here:

* The world: four by four cells, of which one is the goal and two are pits; an agent goes up, down,
  left or right, and in a tenth of its steps slips in any direction. A step costs 0.04, the goal is
  worth 1, a pit costs 1; both end an episode, which begins on any other cell.
* Two layers with a ReLU between them, on the cell as one of 16; Adam; the mean square in place of
  Mnih's clipped error. Sizes and rates are those with which the agent learns in some hundred steps.
* An episode that has taken too long is cut: the next one begins, but the experience is written as
  one that goes on.
* Validation is an episode from each first cell, acting at random in a twentieth of the steps, as
  Mnih et al. do. Accuracy is the share of these that end at the goal. The loss is minus the reward:
  of a step in training, of an episode in validation.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any, Literal, NamedTuple

import numpy as np
from pydantic import Field

import ampsim
from ampsim import flow
from ampsim.errors import OptionError
from ampsim.nodes import Linear
from ampsim.optim import adam

SIDE, GOAL, PITS = 4, 15, (5, 11)
CELLS, ACTIONS = SIDE * SIDE, 4
MOVES = ((-1, 0), (1, 0), (0, -1), (0, 1))
REWARDS = np.full(CELLS, -0.04)
REWARDS[GOAL], REWARDS[list(PITS)] = 1.0, -1.0
IS_END = np.isin(np.arange(CELLS), [GOAL, *PITS])
STARTS = np.flatnonzero(~IS_END)
CHANCES = 100 * ACTIONS
"""Of the wind, a whole number below this says whether it blows, and where."""

STEPS_MAX = 10**7
"""Of an epoch (chosen: hours)."""

Count = Annotated[int, Field(ge=1)]
Share = Annotated[float, Field(ge=0, le=1)]
Rate = Annotated[float, Field(gt=0, allow_inf_nan=False)]


@dataclass(frozen=True)
class Config:
    """Options of the agent and its world.

    Args:
        hidden: units of the hidden layer.
        batch: experiences that one step of learning is on.
        capacity: experiences that the database holds, the latest ones.
        learn_from: steps after which learning begins.
        learn_every: steps from one step of learning to the next.
        copy_every: steps from one copy of the target network to the next.
        explore_steps: in which exploring falls from always to `explore`.
        explore: share of steps in which the agent acts at random then.
        valid_explore: the same in validation; with 1 the agent there is one that acts at random.
        discount: of a reward one step later.
        slip_percent: of steps, in which the agent goes anywhere.
        episode_steps: after which an episode is cut.
        epoch_steps: steps of the environment from one validation to the next.
        learning_rate: of Adam.
        dtype: of parameters and activations.
    """

    hidden: Count = 32
    batch: Count = 32
    capacity: Annotated[int, Field(ge=1, le=10**6)] = 1000
    learn_from: Count = 50
    learn_every: Count = 1
    copy_every: Count = 25
    explore_steps: Count = 300
    explore: Share = 0.3
    valid_explore: Share = 0.05
    discount: Share = 0.9
    slip_percent: Annotated[int, Field(ge=0, le=100)] = 10
    episode_steps: Count = 40
    epoch_steps: Count = 100
    learning_rate: Rate = 3e-3
    dtype: Literal["float32", "float64"] = "float32"


class Interaction(NamedTuple):
    """A batch of training: one step of the environment."""

    seed: int
    rows: int = 1


class Episodes(NamedTuple):
    """A batch of validation: an episode from each of these cells."""

    seed: int
    cells: np.ndarray

    @property
    def rows(self) -> int:
        """How many episodes."""
        return len(self.cells)


@dataclass(frozen=True)
class GridWorld:
    """The environment as a data set: what is learned from comes of acting in it.

    Args:
        steps: of an epoch.
        slip_percent: of steps, in which the agent goes anywhere.
    """

    steps: int
    slip_percent: int
    name = "grid-world"
    description = "a cell of a grid; which way leads to the goal"

    def __post_init__(self) -> None:
        """Check how long an epoch is.

        Raises:
            OptionError: it takes more steps than anybody waits for.
        """
        if self.steps > STEPS_MAX:
            raise OptionError(
                f"steps of an epoch must be at most {STEPS_MAX:,}, got {self.steps}; take fewer "
                "instances, or epoch_steps"
            )

    def step(self, cell: np.ndarray, action: np.ndarray, wind: np.ndarray) -> np.ndarray:
        """The next cell of each cell.

        Args:
            cell: numbers of cells, row by row.
            action: numbers of `MOVES`.
            wind: whole numbers from 0 to below `CHANCES`.
        """
        action = np.where(wind // ACTIONS < self.slip_percent, wind % ACTIONS, action)
        down, right = np.moveaxis(np.array(MOVES)[action], -1, 0)
        row, column = cell // SIDE + down, cell % SIDE + right
        return np.clip(row, 0, SIDE - 1) * SIDE + np.clip(column, 0, SIDE - 1)

    def count(self, split: str) -> int:
        """Steps of an epoch, or episodes of a validation."""
        return self.steps if split == "train" else len(STARTS)

    def batch_count(self, split: str) -> int:
        """Each step by itself, and all episodes at once."""
        return self.steps if split == "train" else 1

    def batches(self, split: str, *, epoch: int, seed: int) -> Iterator[Any]:
        """What a split is made of; the seed is that of the program's generators."""
        if split == "valid":
            return iter([Episodes(seed, STARTS)])
        return (Interaction(seed) for _ in range(self.steps))


def he_normal(d_in: int, d_out: int, generator: np.random.Generator) -> np.ndarray:
    """Draw a first weight, (d_in, d_out), as He et al. (2015) do."""
    return generator.normal(0.0, math.sqrt(2 / d_in), (d_in, d_out))


def layers(config: Config) -> list[Linear]:
    """The network's layers; the cell, one of `CELLS`, to the value of each action."""
    return [
        Linear(name, d_in, d_out, start=partial(he_normal, d_in, d_out))
        for name, d_in, d_out in (
            ("linear-1", CELLS, config.hidden),
            ("linear-2", config.hidden, ACTIONS),
        )
    ]


class Agent:
    """What both programs have: the network, and the one that it was when it was last copied."""

    def __init__(self, config: Config) -> None:
        """Make the variables."""
        self.config, self.dtype = config, np.dtype(config.dtype)
        self._of_cell, self._of_action = np.eye(CELLS), np.eye(ACTIONS)
        shapes = {
            f"{one.name}.{key}": shape
            for one in layers(config)
            for key, shape in one.parameter_shapes.items()
        }
        self.learned = {
            name: flow.variable(name, shape=shape, dtype=self.dtype)
            for name, shape in shapes.items()
        }
        self.target = {
            name: flow.variable(f"target.{name}", np.zeros(shape, self.dtype), trainable=False)
            for name, shape in shapes.items()
        }

    def values(self, weights: dict[str, flow.Tensor], cells: flow.Tensor) -> flow.Tensor:
        """What each action is worth in each cell, (rows, ACTIONS)."""
        x = flow.pick(self._of_cell.astype(self.dtype), cells)
        x = flow.relu(flow.matmul(x, weights["linear-1.weight"]) + weights["linear-1.bias"])
        return flow.matmul(x, weights["linear-2.weight"]) + weights["linear-2.bias"]

    def of_actions(self, values: flow.Tensor, actions: flow.Tensor) -> flow.Tensor:
        """What one action in each row is worth."""
        return flow.sum(values * flow.pick(self._of_action.astype(self.dtype), actions), 1)

    def choose(self, step: flow.Tensor, cell: flow.Tensor, dice: flow.Generator) -> flow.Tensor:
        """An action at random, or the best one: exploring falls from always, step by step."""
        config = self.config
        fallen = flow.cast(step, self.dtype) * ((1 - config.explore) / config.explore_steps)
        chance = flow.where(step < config.explore_steps, 1.0 - fallen, config.explore)
        return flow.cond(
            dice.random() < chance,
            lambda: dice.integers(ACTIONS),
            lambda: flow.reshape(self.best(flow.expand(cell, 0)), ()),
        )

    def loss(self, had: dict[str, flow.Tensor]) -> flow.Tensor:
        """The mean square of what the network is off, by the target network, on experiences."""
        value = self.of_actions(self.values(self.learned, had["cell"]), had["action"])
        then = self.values(self.target, had["next"])
        best = self.of_actions(then, flow.argmax(then))
        gap = value - (had["reward"] + had["discount"] * best)
        return flow.sum(flow.square(gap)) * (1 / self.config.batch)

    def best(self, cells: flow.Tensor) -> flow.Tensor:
        """What the network takes for the best action in each cell."""
        return flow.argmax(self.values(self.learned, cells))

    def copy(self) -> flow.Tensor:
        """Let the target network be what the network is now."""
        return flow.group(
            *(flow.assign(self.target[name], one) for name, one in self.learned.items())
        )


class Database:
    """The latest experiences: in which cell which action gave which reward, and what followed."""

    def __init__(self, capacity: int, dtype: Any) -> None:
        """Make the variables, which are empty."""
        kinds = {"cell": "int64", "action": "int64", "reward": dtype, "next": "int64"}
        self._capacity = capacity
        self._columns = {
            key: flow.variable(f"database.{key}", np.zeros(capacity, kind), trainable=False)
            for key, kind in {**kinds, "discount": dtype}.items()
        }

    def write(self, step: flow.Tensor, **values: Any) -> flow.Tensor:
        """Write some columns of the experience of a step."""
        place = flow.expand(step % self._capacity, 0)
        return flow.group(
            *(
                flow.assign_rows(self._columns[key], place, flow.expand(value, 0))
                for key, value in values.items()
            )
        )

    def sample(
        self, step: flow.Tensor, chance: flow.Generator, rows: int
    ) -> dict[str, flow.Tensor]:  # fmt: skip
        """Columns of some experiences before a step, each as likely as any other."""
        known = flow.where(step < self._capacity, step, self._capacity)
        places = chance.integers(known, (rows,))
        return {key: flow.pick(one, places) for key, one in self._columns.items()}


class Environment:
    """Its state as variables, its step as an operator, and its random numbers."""

    def __init__(self, config: Config, world: GridWorld, seed: flow.Tensor) -> None:
        """Begin in the first cell."""
        self._world, self._nature = world, flow.Generator("environment", seed)
        self.episode_steps = config.episode_steps
        self.cell, self.age = flow.variable("cell", 0), flow.variable("age", 0)

    def act(self, action: flow.Tensor) -> flow.Tensor:
        """The next cell."""
        wind = self._nature.integers(CHANCES)
        return flow.numpy_function(self._world.step, [self.cell, action, wind], dtype="int64")

    def begin(self) -> tuple[flow.Tensor, flow.Tensor]:
        """Another episode: its cell and age."""
        return flow.pick(STARTS, self._nature.integers(len(STARTS))), flow.constant(0)

    def go_on(self, after: flow.Tensor) -> tuple[flow.Tensor, flow.Tensor]:
        """The next cell and age; where an episode has taken too long, those of another one."""
        is_cut = self.age + 1 >= self.episode_steps
        return flow.cond(is_cut, self.begin, lambda: (after, self.age + 1))

    def move(self, cell: flow.Tensor, age: flow.Tensor) -> flow.Tensor:
        """Be there from the next run on."""
        return flow.group(flow.assign(self.cell, cell), flow.assign(self.age, age))


def interaction(config: Config, world: GridWorld, minimize: Callable[..., Any]) -> flow.Objective:
    """Build a step of the environment, and what the agent makes of it."""
    agent = Agent(config)
    database = Database(config.capacity, agent.dtype)
    seed, step = flow.input("seed", dtype="int64"), flow.variable("step", 0)
    dice, sampling = flow.Generator("agent", seed), flow.Generator("sampling", seed)
    environment = Environment(config, world, seed)
    action = agent.choose(step, environment.cell, dice)
    after = environment.act(action)
    reward = flow.pick(REWARDS.astype(agent.dtype), after)

    def end() -> tuple[flow.Tensor, ...]:
        return database.write(step, discount=flow.constant(0.0, agent.dtype)), *environment.begin()

    def go_on() -> tuple[flow.Tensor, ...]:
        discount = flow.constant(config.discount, agent.dtype)
        return database.write(step, next=after, discount=discount), *environment.go_on(after)

    def learn() -> flow.Tensor:
        return minimize(agent.loss(database.sample(step, sampling, config.batch)))

    def nothing() -> flow.Tensor:
        return flow.constant(True)

    written, *moved = flow.cond(flow.pick(IS_END, after), end, go_on)
    is_time = flow.equal(step % config.learn_every, 0)
    done = flow.group(
        database.write(step, cell=environment.cell, action=action, reward=reward),
        written,
        environment.move(*moved),
        flow.cond(flow.logical_and(step >= config.learn_from, is_time), learn, nothing),
        flow.cond(flow.equal(step % config.copy_every, 0), agent.copy, nothing),
        flow.assign(step, step + 1),
    )
    return flow.Objective(-reward, done=done)


def episodes(config: Config, world: GridWorld) -> flow.Objective:
    """Build episodes from some cells, in which nothing is learned."""
    agent, rows = Agent(config), len(STARTS)
    first = flow.input("cells", (rows,), "int64")
    chance = flow.Generator("validation", flow.input("validation seed", dtype="int64"))
    rewards = REWARDS.astype(agent.dtype)

    def is_under_way(i: Any, cells: Any, is_alive: Any, total: Any) -> Any:
        is_any = flow.sum(flow.cast(is_alive, "int64")) > 0
        return flow.logical_and(i < config.episode_steps, is_any)

    def act(i: Any, cells: Any, is_alive: Any, total: Any) -> Any:
        explores = chance.random((rows,)) < config.valid_explore
        action = flow.where(explores, chance.integers(ACTIONS, (rows,)), agent.best(cells))
        wind = chance.integers(CHANCES, (rows,))
        after = flow.numpy_function(world.step, [cells, action, wind], dtype="int64")
        after = flow.where(is_alive, after, cells)
        total = total + flow.where(is_alive, flow.pick(rewards, after), 0.0)
        return i + 1, after, flow.logical_not(flow.pick(IS_END, after)), total

    start = (0, first, np.ones(rows, bool), np.zeros(rows, agent.dtype))
    _, cells, _, total = flow.while_loop(is_under_way, act, start, name="episode")
    reached = flow.sum(flow.cast(flow.equal(cells, GOAL), "int64"))
    return flow.Objective(flow.sum(total) * (-1 / rows), reached)


def program(config: Config, world: GridWorld) -> flow.Program:
    """Both as a program."""

    def feed(batch: Interaction | Episodes) -> dict[str, Any]:
        if isinstance(batch, Interaction):
            return {"seed": batch.seed}
        return {"validation seed": batch.seed, "cells": batch.cells}

    return flow.Program(
        lambda: episodes(config, world),
        feed,
        lambda minimize: interaction(config, world, minimize),
    )


def build(config: Config) -> ampsim.Model:
    """Build the model."""
    world = GridWorld(config.epoch_steps, config.slip_percent)

    def data(seed: int, train_count: int | None) -> GridWorld:
        return GridWorld(train_count or config.epoch_steps, config.slip_percent)

    return ampsim.Model(
        name="dqn",
        config=config,
        make_graph=None,
        make_layers=lambda: layers(config),
        make_program=lambda: program(config, world),
        make_data=data,
        pump=None,
        optimizer=adam(config.learning_rate),
        target=0.85,
        items="steps",
        dtype=config.dtype,
    )
