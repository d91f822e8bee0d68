"""The command line: words in, words out; what they mean is decided in the layers below."""

from ampsim.cli.start import main

__all__ = ["main"]
