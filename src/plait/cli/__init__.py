"""The command line: parse, call, print. Text goes to stdout alone; notices, progress and errors go to stderr."""

from plait.cli.commands import main

__all__ = ["main"]
