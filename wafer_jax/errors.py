"""The one exception that users see."""


class WaferError(ValueError):
    """A mistake in what the user gave: one line that says what, where and what to do.

    The command line prints the line and exits with status 2; a notebook shows it as any exception.
    """
