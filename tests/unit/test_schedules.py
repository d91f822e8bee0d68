"""Schedules: what each decides, and which options it refuses."""

import numpy as np
import pytest

from ampsim import Amp, Pipeline, Sequential, simulate
from ampsim.errors import OptionError
from ampsim.ir import Direction
from ampsim.runtime import SCHEDULES


@pytest.mark.parametrize("kind", SCHEDULES.values())
def test_every_schedule_is_listed_under_its_name_and_serves_each_direction_once(kind):
    schedule = kind()
    assert SCHEDULES[schedule.name] is kind
    assert sorted(schedule.order) == list(Direction)
    assert schedule.order.index(Direction.BACKWARD) < schedule.order.index(Direction.FORWARD)


def test_sequential_admits_one_and_leaves_updates_to_the_controller():
    schedule = Sequential()
    assert (schedule.max_active_keys, schedule.drains) == (1, True)
    assert schedule.update_interval("linear", 7) is None


def test_pipeline_admits_m_and_leaves_updates_to_the_controller():
    schedule = Pipeline(5)
    assert (schedule.max_active_keys, schedule.drains) == (5, True)
    assert schedule.update_interval("linear", 7) is None


@pytest.mark.parametrize(
    ("asked", "interval"),
    [(None, 7), (3, 3), (np.int64(3), 3), ({"linear": 2}, 2), ({"other": 2}, 7), ({}, 7)],
)
def test_amp_updates_as_asked_and_else_as_the_model_prefers(asked, interval):
    schedule = Amp(min_update_interval=asked)
    assert not schedule.drains
    assert schedule.update_interval("linear", 7) == interval


@pytest.mark.parametrize("kind", [Amp, Pipeline])
@pytest.mark.parametrize("value", [0, -1, 1.5, None])
def test_max_active_keys_below_one_is_refused(kind, value):
    text = rf"^max_active_keys must be a whole number >= 1, got {value}$"
    with pytest.raises(OptionError, match=text):
        kind(max_active_keys=value)


def test_min_update_interval_below_one_is_refused():
    text = "^min_update_interval must be a whole number >= 1, got 0$"
    with pytest.raises(OptionError, match=text):
        Amp(min_update_interval=0)


def test_min_update_interval_of_a_node_below_one_is_refused_by_the_nodes_name():
    text = "^min_update_interval of linear-1 must be a whole number >= 1, got -2$"
    with pytest.raises(OptionError, match=text):
        Amp(min_update_interval={"embedding": 1, "linear-1": -2})


def test_min_update_interval_of_a_node_that_is_not_there_is_refused(chain, make_cluster):
    text = (
        "^min_update_interval: no node that learns named 'stge-1'; did you mean 'stage-1'\\? "
        "known: stage-1, stage-2$"
    )
    schedule = Amp(min_update_interval={"stge-1": 2})
    with pytest.raises(OptionError, match=text):
        simulate(chain(((1, 1, 1),) * 2).model(), make_cluster(2), schedule)
