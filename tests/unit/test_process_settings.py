"""Settings of the whole process, under many threads at once."""

import gc
import random
import threading
import time

import pytest
from threadpoolctl import threadpool_info

import ampsim.study.process_settings as process_settings
from ampsim import Sequential, simulate
from ampsim.study.process_settings import ALLOCATIONS, fixed_settings, single_threaded

HEAVY = ((10, 20, 5),) * 2


def blas_threads() -> list[int]:
    return [one["num_threads"] for one in threadpool_info() if one["user_api"] == "blas"]


def settings() -> tuple[object, list[int]]:
    return gc.get_threshold(), blas_threads()


def in_threads(count, work):
    """Run `work(number)` in so many threads; what one of them raised is raised here."""
    errors = []

    def run(number):
        try:
            work(number)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]


@pytest.mark.slow
def test_many_threads_keep_the_settings_while_any_runs_and_put_them_back():
    before = settings()

    def work(number):
        chance = random.Random(number)
        for _ in range(3):
            time.sleep(chance.random() / 500)
            with fixed_settings():
                time.sleep(chance.random() / 500)
                assert gc.get_threshold()[0] == ALLOCATIONS
                assert set(blas_threads()) <= {1}

    in_threads(16, work)
    assert settings() == before


def test_runs_in_threads_give_what_runs_alone_give_and_leave_no_setting_behind(chain, make_cluster):
    model, before = chain(HEAVY, instances=6, valid=3, rows=4).model(), settings()
    alone = [simulate(model, make_cluster(2), Sequential(), seed=seed).digest for seed in range(8)]
    digests = dict.fromkeys(range(8), "")

    def work(seed):
        digests[seed] = simulate(model, make_cluster(2), Sequential(), seed=seed).digest

    in_threads(8, work)
    assert list(digests.values()) == alone
    assert settings() == before


def test_the_one_that_came_first_may_go_first():
    before = settings()
    first, second = fixed_settings(), single_threaded()
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert set(blas_threads()) <= {1}
    assert gc.get_threshold() == before[0]
    second.__exit__(None, None, None)
    assert settings() == before


def test_an_error_puts_the_settings_back():
    before = settings()
    with pytest.raises(KeyboardInterrupt), fixed_settings():
        raise KeyboardInterrupt
    assert settings() == before


def test_where_each_thread_has_its_own_limit_each_sets_it(monkeypatch):
    before = settings()
    monkeypatch.setattr(process_settings, "_is_limit_per_thread", lambda: True)
    with fixed_settings(), fixed_settings():
        assert set(blas_threads()) <= {1}
    assert settings() == before
