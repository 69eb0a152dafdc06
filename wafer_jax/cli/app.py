"""The commands together, and what their failures look like.

Exit codes: 0 success, 1 a check that failed, 2 a mistake of the user (one line says which),
70 a defect of this program (EX_SOFTWARE of sysexits.h), 130 interrupted.
"""

import sys
import traceback
from dataclasses import dataclass
from typing import Annotated

import typer

from wafer_jax._version import __version__
from wafer_jax.cli.audit import audit
from wafer_jax.cli.check import check
from wafer_jax.cli.demo import demo
from wafer_jax.cli.experiment import experiment
from wafer_jax.cli.generate import generate
from wafer_jax.cli.info import info
from wafer_jax.cli.programs import run, show
from wafer_jax.cli.report import report
from wafer_jax.cli.sweep import sweep
from wafer_jax.cli.tune import tune
from wafer_jax.cli.validate import validate
from wafer_jax.errors import WaferError

USER_ERROR, DEFECT, INTERRUPTED = 2, 70, 130

# typer brings its own copy of click in newer versions and uses the installed one in older ones.
_ClickException: type[Exception] = typer.BadParameter.__mro__[2]

app = typer.Typer(
    name="wafer-jax",
    help="Emulate wafer-scale mesh accelerators: real models, checked values, cycles per operator.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
)
for command in (
    demo,
    generate,
    check,
    info,
    tune,
    run,
    show,
    sweep,
    audit,
    validate,
    experiment,
    report,
):
    app.command()(command)


@dataclass
class Settings:
    """What the options before the command say."""

    debug: bool = False


def _show_version(wanted: bool) -> None:
    if wanted:
        print(f"wafer-jax {__version__}")
        raise typer.Exit


@app.callback()
def options(
    context: typer.Context,
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_show_version, is_eager=True, help="Print the version and exit."
        ),
    ] = False,
    debug: Annotated[
        bool, typer.Option("--debug", help="Show the traceback of an unexpected error.")
    ] = False,
) -> None:
    """Take the options before the command."""
    context.obj.debug = debug


def main(arguments: list[str] | None = None) -> int:
    """Run a command line.

    Args:
      arguments: What follows ``wafer-jax``; the process's own arguments by default.

    Returns:
      The exit code.
    """
    settings = Settings()
    try:
        command = typer.main.get_command(app)
        code = command.main(arguments, prog_name="wafer-jax", standalone_mode=False, obj=settings)
        code = code if isinstance(code, int) else 0
    except WaferError as error:
        code = _fail(str(error), USER_ERROR)
    except _ClickException as error:
        # Without a command the help is on the screen already, and the message is empty.
        message = error.format_message()  # pyright: ignore[reportAttributeAccessIssue]
        code = _fail(message, USER_ERROR) if message else USER_ERROR
    except (KeyboardInterrupt, typer.Abort):
        code = INTERRUPTED
    except Exception as error:
        if settings.debug:
            traceback.print_exc()
            return DEFECT
        what = f"{type(error).__name__}: {error}"
        code = _fail(f"unexpected {what}; this is a defect: repeat with 'wafer-jax --debug ...' "
                     "and report the traceback", DEFECT)  # fmt: skip
    if code == INTERRUPTED:
        print("interrupted", file=sys.stderr)
    return code


def _fail(message: str, code: int) -> int:
    """Print one line, whatever the message holds."""
    print("error: " + " ".join(message.split()), file=sys.stderr)
    return code
