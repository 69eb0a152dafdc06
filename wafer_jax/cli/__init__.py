"""The command ``wafer-jax``: one file per command; see ``wafer-jax --help``.

Only what parses the command line is imported here; a command imports what it runs.
"""

from wafer_jax.cli.app import main

__all__ = ["main"]
