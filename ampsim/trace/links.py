"""How long each link was occupied, read off the transfers alone."""

from __future__ import annotations

import numpy as np

from ampsim.trace.window import NOWHERE, Window


def held_s(window: Window) -> dict[tuple[int, int], tuple[np.ndarray, np.ndarray]]:
    """Return from when to when each link was occupied.

    A message of b bytes holds its link for b / bandwidth, and flies on for the latency, which
    occupies nothing. The trace has the sum of the two; messages of different sizes tell them apart,
    exactly. Where all messages of a link have one size, that is an upper bound: each is taken to
    hold the link for as long as it took, or until the soonest next one started.

    Returns:
        Starts and ends of its messages, for each (source worker, target worker), -1 for the host.
    """
    places, sent = window.places, window.transfers
    pairs = np.stack([places[sent["source"]], places[sent["target"]]])
    found: dict[tuple[int, int], tuple[np.ndarray, np.ndarray]] = {}
    for source, target in np.unique(pairs, axis=1).T.tolist():
        if NOWHERE in (source, target):
            continue
        is_here = (pairs[0] == source) & (pairs[1] == target)
        starts_s = sent["start_s"][is_here]
        each_s = _each_s(sent["bytes"][is_here], window.transfer_s[is_here], starts_s)
        found[source, target] = (starts_s, np.minimum(starts_s + each_s, window.end_s))
    return found


def _each_s(sizes: np.ndarray, seconds: np.ndarray, starts_s: np.ndarray) -> np.ndarray:
    """Return how long each message of one link held it."""
    small, large = int(sizes.argmin()), int(sizes.argmax())
    if sizes[large] > sizes[small]:
        per_byte = float(seconds[large] - seconds[small]) / float(sizes[large] - sizes[small])
        return max(0.0, per_byte) * sizes
    if not sizes[large]:
        return np.zeros(len(sizes))
    gap_s = np.diff(np.sort(starts_s)).min(initial=np.inf)
    return np.full(len(sizes), min(float(seconds.min()), float(gap_s)))
