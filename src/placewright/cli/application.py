"""The commands together, and what the program exits with."""

from __future__ import annotations

import os
import sys
from typing import Annotated, NoReturn

import typer
from typer.exceptions import TyperException

from placewright import __version__
from placewright.cli.console import EXIT_INTERRUPTED, complain
from placewright.cli.machine import calibrate, doctor, probe, profile
from placewright.cli.options import CataloguePath
from placewright.cli.planning import compare, convert, plan, solvers
from placewright.cli.plans import evaluate, explain, export, show, verify
from placewright.cli.plans import run as run_command
from placewright.cli.serving import generate, serve
from placewright.cli.wishing import whatif
from placewright.ended_by_signal import EndedBySignal
from placewright.errors import PlacewrightError
from placewright.left_running import any_left

__all__ = ["app", "run"]

app: typer.Typer = typer.Typer(
    name="placewright",
    help="Decide where each operator of a neural network runs on unlike devices, prove how good that is, and run it.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

for command in (
    *(plan, compare, run_command, show, explain, whatif, evaluate, verify),
    *(generate, serve),
    *(probe, profile, calibrate, convert, export, solvers, doctor),
):
    app.command()(command)


@app.callback(invoke_without_command=True)
def _top(
    version: Annotated[bool, typer.Option("--version", help="Show the version and exit.")] = False,
    catalogue: CataloguePath = None,
) -> None:
    if version:
        sys.stdout.write(f"placewright {__version__}\n")
        raise typer.Exit(0)


def run(arguments: list[str] | None = None) -> NoReturn:
    """Run a command and exit, by what it returned or raised: see :func:`placewright.cli.main`."""
    import logging

    logging.basicConfig(level=logging.WARNING, format="placewright: %(message)s", stream=sys.stderr)
    try:
        code = app(arguments, prog_name="placewright", standalone_mode=False)
        sys.stdout.flush()
    except PlacewrightError as error:
        complain(str(error))
        code = error.exit_code
    except TyperException as error:
        if error.format_message():  # without arguments the help was shown
            complain(f"{error.format_message()} (see 'placewright --help')")
        code = 2
    except KeyboardInterrupt:
        code = EXIT_INTERRUPTED
    except EndedBySignal as ended:
        complain(str(ended))
        code = ended.code
    except BrokenPipeError:  # the reader of our output has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = 1
    except (OSError, MemoryError) as error:
        complain(f"{type(error).__name__}: {error}")
        code = 2
    if code == EXIT_INTERRUPTED:  # from here, or from the command line's library
        complain("interrupted")
    if any_left():  # all is written, and nobody waits for them
        sys.stdout.flush()
        os._exit(code if isinstance(code, int) else 0)
    sys.exit(code if isinstance(code, int) else 0)
