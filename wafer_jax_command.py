"""The entry point of ``wafer-jax``; outside the package, whose import takes most of a second."""

import os
import signal
import sys


def main() -> int:
    """Run the command line; an interrupt is one line from the first import on."""
    handler = signal.getsignal(signal.SIGINT)
    if handler is signal.default_int_handler:
        signal.signal(signal.SIGINT, _leave)
    from wafer_jax.cli import main as run

    signal.signal(signal.SIGINT, handler)
    return run()


def _leave(*_) -> None:
    # An exception would not do: extensions turn it into an ImportError, gc callbacks swallow it.
    print("interrupted", file=sys.stderr, flush=True)
    os._exit(130)
