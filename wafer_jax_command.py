"""The entry point of ``wafer-jax``; outside the package, whose import takes a good second."""

import sys


def main() -> int:
    """Run the command line; an interrupt is one line from the first import on."""
    try:
        from wafer_jax.cli import main as run

        return run()
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130
