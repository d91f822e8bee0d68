"""Traces for ui.perfetto.dev, in the trace event format."""
