"""Events, failures and messages in a cluster file: what is read, and what is refused in a line."""

from __future__ import annotations

import pytest

from ampsim.errors import FileFormatError, OptionError
from ampsim.hardware import Cluster, Event, Failures, Messages, load_cluster
from ampsim.study.provenance import costs

HEAD = """
[[device]]
name = "tflops-1"
count = 3
"""
SOURCE = 'source = {kind = "assumed", text = "for tests"}'
EVENT = f"""
[[events]]
kind = "stop"
worker = [0, 2]
from_s = 1.0
until_s = 2.5
{SOURCE}
"""
FAILURES = f"""
[failures]
kind = "slow"
factor = 3.0
worker = 1
mean_time_between_s = 10.0
mean_time_to_repair_s = 0.5
{SOURCE}
"""
LOSING = EVENT.replace('"stop"', '"stop"\nweights = "checkpoint"')
CHECKPOINTS = f"""
[checkpoints]
every_s = 0.25
takes_s = 0.01
bandwidth_bytes_per_s = 1e9
{SOURCE}
"""
MESSAGES = f"""
[messages]
loss_probability = 0.01
retry_after_s = 1e-3
delay_cv = 0.2
{SOURCE}
"""


@pytest.fixture
def load(tmp_path, monkeypatch):
    """The cluster of a file with the given content."""
    monkeypatch.chdir(tmp_path)

    def write_and_load(content: str) -> Cluster:
        (tmp_path / "flaky.toml").write_text(content)
        return load_cluster("flaky.toml")

    return write_and_load


def test_a_cluster_file_says_what_varies(load):
    cluster = load(HEAD + EVENT + FAILURES + MESSAGES)
    (event,) = cluster.events
    assert (event.kind, event.worker, event.from_s, event.until_s) == ("stop", (0, 2), 1.0, 2.5)
    assert event.is_step_lost
    assert [event.hits(worker) for worker in range(3)] == [True, False, True]
    assert cluster.failures is not None
    assert (cluster.failures.slowness, cluster.failures.worker) == (3.0, (1,))
    assert cluster.messages is not None
    assert cluster.messages.retry_after_s == 1e-3


def test_a_cluster_file_says_what_a_stop_takes_and_when_copies_are_made(load):
    cluster = load(HEAD + LOSING + FAILURES + CHECKPOINTS)
    assert [one.loses_weights for one in (*cluster.events, cluster.failures)] == [True, False]
    checkpoints = cluster.checkpoints
    assert (checkpoints.every_s, checkpoints.is_free) == (0.25, False)
    assert checkpoints.seconds(2 * 10**9) == 0.01 + 2.0
    kept = load(HEAD + LOSING.replace('"checkpoint"', '"kept"'))
    assert not kept.events[0].loses_weights


def test_what_is_made_in_code_equals_what_is_read(load):
    made = Event(kind="stop", worker=[0, 2], from_s=1.0, until_s=2.5)  # pyright: ignore[reportArgumentType]  # a list is welcome
    assert load(HEAD + EVENT).events[0].model_copy(update={"source": None}) == made


def test_the_digest_of_a_cluster_counts_what_varies_only_where_it_is_set(load):
    parts = ("", EVENT, FAILURES, MESSAGES, LOSING + CHECKPOINTS, EVENT + CHECKPOINTS)
    digests = [load(HEAD + part).digest for part in parts]
    assert len(set(digests)) == len(parts)
    # as of before there were checkpoints
    assert digests[1:4] == [
        "25dee2916c1c1f32be5859f599432006397cfae42278e32a8b27d21673dfe94d",
        "82662fcca1fb3607cea9aeecf5095e66efdfa61dd933153159b27fa5c3d29bb8",
        "dfc305383c0b8c4e8a15ace2654ee96a1780a26d77172bb83c7c0545c902f62c",
    ]
    assert load_cluster("tflops-1", workers=3, latency_s=1e-6).digest == (
        "6d906b1d89b275cffd7de2537e66bc0a6cd39f88440598e523e79fd0c80ee36c"
    )


STOP_1 = 'kind = "stop"|kind = "stop"\n'
REFUSED = {
    'kind = "stop"|kind = "pause"\nweights = "kept"': 'events[0]: kind "pause" has no weights;',
    f'{STOP_1}weights = "lost"': "events[0].weights must be 'kept' or 'checkpoint', got 'lost'",
    f'{STOP_1}weights = "checkpoint"\nloses_step = false': 'events[0]: weights "checkpoint" loses '
    "the step in the middle, too, got loses_step = false; leave it out",
    "takes_s = 0.01|takes_s = -1": "checkpoints.takes_s must be >= 0, got -1",
    "every_s = 0.25|every_s = 0": "checkpoints.every_s must be >= 1e-09, got 0",
    "every_s = 0.25|": "missing key 'checkpoints.every_s'",
    "every_s = 0.25|every = 0.25": "unknown key 'every' in checkpoints; did you mean 'every_s'?",
    "per_s = 1e9|per_s = 0": "checkpoints.bandwidth_bytes_per_s must be > 0, got 0",
    f"per_s = 1e9\n{SOURCE}|per_s = 1e9": "checkpoints has no key 'source'",
    'kind = "stop"|kind = "halt"': "events[0].kind must be 'slow', 'pause' or 'stop', got 'halt'",
    'kind = "stop"|kind = "slow"': 'events[0]: kind "slow" needs a factor',
    'kind = "stop"|kind = "pause"\nloses_step = true': 'events[0]: kind "pause" has no loses_step',
    'kind = "stop"|kind = "stop"\nfactor = 2.0': 'events[0]: kind "stop" has no factor',
    'kind = "stop"|kind = "slow"\nfactor = 0.5': "events[0].factor must be >= 1, got 0.5",
    "worker = [0, 2]|worker = 3": "events[0].worker must be below 3, the count of workers, got 3",
    "worker = [0, 2]|worker = -1": "events[0].worker: expected a worker's index, a list of them, "
    "or 'all', got -1",
    "worker = [0, 2]|worker = []": "got []",
    "worker = [0, 2]|worker = [1, 1]": "expected each worker once, got [1, 1]",
    "worker = [0, 2]|worker = true": "got True",
    "until_s = 2.5|until_s = 1.0": "events[0]: until_s must be > 1, from_s, got 1",
    "until_s = 2.5|until_s = inf": "events[0].until_s must be a finite number",
    "until_s = 2.5|": "missing key 'events[0].until_s'",
    "from_s = 1.0|from = 1.0": "unknown key 'from' in events[0]; did you mean 'from_s'?",
    f"until_s = 2.5\n{SOURCE}|until_s = 2.5": "events[0] has no key 'source'",
    "mean_time_between_s = 10.0|mean_time_between_s = 0": "failures.mean_time_between_s must be "
    ">= 1e-09, got 0",
    f"repair_s = 0.5\n{SOURCE}|repair_s = 0.5": "failures has no key 'source'",
    "loss_probability = 0.01|loss_probability = 1.0": "messages.loss_probability must be <= 0.99",
    "retry_after_s = 1e-3|": "messages: loss_probability needs retry_after_s",
    "loss_probability = 0.01|": "messages: retry_after_s has no effect without loss_probability",
    "loss_probability = 0.01\nretry_after_s = 1e-3\ndelay_cv = 0.2|": "messages: expected "
    "loss_probability or delay_cv, got neither; add one",
    "loss_probability = 0.01\nretry_after_s = 1e-3|": "messages have no effect: none is lost, and "
    "no way has a latency that varies; leave them out, or add one of the two",
    "delay_cv = 0.2|delay_cv = 11.0": "messages.delay_cv must be <= 10, got 11",
    f"delay_cv = 0.2\n{SOURCE}|delay_cv = 0.2": "messages has no key 'source'",
}


@pytest.mark.parametrize("change", REFUSED)
def test_what_is_wrong_is_told_in_one_line(load, change):
    before, after = change.split("|")
    content = HEAD + EVENT + FAILURES + CHECKPOINTS + MESSAGES
    assert before in content
    with pytest.raises(FileFormatError) as raised:
        load(content.replace(before, after, 1))
    said = str(raised.value)
    assert said.startswith("flaky.toml: ")
    assert "\n" not in said
    assert REFUSED[change] in said


def test_checkpoints_without_effect_and_stops_without_checkpoints_are_refused(load):
    with pytest.raises(FileFormatError, match=r'events\[0\]: weights "checkpoint" needs a table'):
        load(HEAD + LOSING)
    losing = FAILURES.replace('"slow"\nfactor = 3.0', '"stop"\nweights = "checkpoint"')
    with pytest.raises(FileFormatError, match=r'failures: weights "checkpoint" needs a table \[ch'):
        load(HEAD + losing)
    free = f"\n[checkpoints]\nevery_s = 0.25\n{SOURCE}\n"
    with pytest.raises(
        FileFormatError, match=r"checkpoints have no effect: they take no time, and"
    ):
        load(HEAD + EVENT + free)
    load(HEAD + LOSING + free)
    load(HEAD + losing + free)


@pytest.mark.parametrize(
    "with_latency",
    [
        "[link]", "[[links]]\nfrom = 0\nto = 1", '[topology]\nkind = "ring"',
        '[[edges]]\nbetween = [[0, 1], [0, 2]]',
    ],
)  # fmt: skip
def test_delays_alone_have_an_effect_on_each_latency(load, with_latency):
    delays = f"[messages]\ndelay_cv = 0.2\n{SOURCE}\n"
    assert load(f"{HEAD}\n{with_latency}\nlatency_s = 1e-6\n{SOURCE}\n{delays}").messages
    with pytest.raises(FileFormatError, match=r"^flaky.toml: messages have no effect: none is"):
        load(HEAD + delays)


def test_stops_of_one_worker_that_overlap_are_refused(load):
    other = EVENT.replace("[0, 2]", '"all"').replace("1.0", "2.0").replace("2.5", "3.0")
    with pytest.raises(FileFormatError, match=r"events\[1\] overlaps events\[0\] on worker 0, fro"):
        load(HEAD + EVENT + other)
    load(HEAD + EVENT + other.replace('"all"', "1"))
    slow = other.replace('"stop"', '"slow"\nfactor = 2.0')
    load(HEAD + EVENT + slow)


def test_wrong_values_in_code_are_told_in_one_line():
    with pytest.raises(OptionError, match=r"^Failures: missing key 'mean_time_between_s'"):
        Failures(mean_time_to_repair_s=1.0)  # pyright: ignore[reportCallIssue]  # on purpose
    with pytest.raises(OptionError, match=r"^Messages: loss_probability must be >= 0, got -0\.1"):
        Messages(loss_probability=-0.1)


def test_a_manifest_names_what_varies_and_on_what_authority(load):
    rows = costs(load(HEAD + LOSING + FAILURES + CHECKPOINTS + MESSAGES))
    told = {row["of"]: row["what"] for row in rows if row["text"] == "for tests"}
    assert told == {
        "workers 0, 2": "stop, the step in its middle done again, weights of the last checkpoint "
        "from 1 s to 2.5 s",
        "worker 1": "3 times as slow every 10 s for 0.5 s in the mean",
        "checkpoints": "every 0.25 s, 0.01 s each and 1e+09 bytes/s",
        "messages": "0.01 of transmissions lost, sent again after 0.001 s; coefficient of "
        "variation of latencies 0.2",
    }
    assert not [row for row in costs(load(HEAD)) if row["text"] == "for tests"]
