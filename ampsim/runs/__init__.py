"""Runs as finished things: made, kept, read back, compared."""

from ampsim.runs.jobs import jobs_here, opened
from ampsim.runs.loaded_run import LoadedRun, load_run
from ampsim.runs.store import Keeping, RunCache

__all__ = ["Keeping", "LoadedRun", "RunCache", "jobs_here", "load_run", "opened"]
