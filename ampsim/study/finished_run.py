"""A finished run as tables and pages read it, whether it was made now or kept from before."""

from __future__ import annotations

from dataclasses import dataclass, field

import pandas as pd

from ampsim.study.outline import Outline


@dataclass(frozen=True)
class FinishedRun:
    """One run of a forecast or report.

    Attributes:
        schedule: what ran; in a report, the label of its row.
        repeat: which of the row's runs, from 1.
        seed: its seed.
        outline: its numbers and tables.
        failure: why it ended early; None where it did not.
    """

    schedule: str
    repeat: int
    seed: int
    outline: Outline = field(repr=False)
    failure: str | None = None

    @property
    def epochs(self) -> pd.DataFrame:
        """One row an epoch."""
        return self.outline.epochs.copy(deep=False)

    @property
    def validations(self) -> pd.DataFrame:
        """One row a validation; empty where none is within an epoch."""
        return self.outline.validations.copy(deep=False)

    @property
    def spans(self) -> pd.DataFrame:
        """The leading spans."""
        return self.outline.spans.copy(deep=False)

    @property
    def transfers(self) -> pd.DataFrame:
        """The leading transfers."""
        return self.outline.transfers.copy(deep=False)

    @property
    def time_by_node(self) -> pd.DataFrame:
        """The time of each node's steps, by direction."""
        return self.outline.time_by_node.copy(deep=False)

    @property
    def path_parts(self) -> pd.DataFrame:
        """Where the critical path spends its time."""
        return self.outline.path_parts.copy(deep=False)

    @property
    def messages(self) -> int:
        """Spans in all, kept or not."""
        return self.outline.messages

    @property
    def peak_memory(self) -> pd.DataFrame:
        """What lay in each worker's memory at its fullest moment; empty where nobody counted."""
        return self.outline.peak_memory.copy(deep=False)

    @property
    def memory(self) -> pd.DataFrame:
        """What lay in the workers' memories over time; empty where nobody counted."""
        return self.outline.memory.copy(deep=False)

    @property
    def staleness(self) -> pd.DataFrame:
        """The histogram of all gradients."""
        return self.outline.staleness.copy(deep=False)

    @property
    def utilisation_by_worker(self) -> pd.DataFrame:
        """The share of the time that each worker spends on steps of each direction."""
        return self.outline.utilisation_by_worker.copy(deep=False)
