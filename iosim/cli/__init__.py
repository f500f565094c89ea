"""The command line: parse, call, show. No arithmetic here; importing it imports no library but typer."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from io import TextIOWrapper
from pathlib import Path
from typing import Annotated

import typer

from iosim.cli.commands import LazyGroup
from iosim.errors import IosimError, RunError

INTERRUPTED = 130  # what typer returns for Ctrl-C

app = typer.Typer(
    name="iosim",
    cls=LazyGroup,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(asked: bool) -> None:
    if asked:
        from iosim.cli.output import version

        print(f"iosim {version()}")
        raise typer.Exit


@app.callback(epilog="Start with `iosim simulate --seq 8192 --heads 32`, or with everything: `iosim report`.")
def _global_options(
    version: Annotated[
        bool, typer.Option("--version", is_eager=True, callback=_print_version, help="Show the version.")
    ] = False,
    debug: Annotated[
        bool, typer.Option("--debug", help="Show the traceback of an error (also IOSIM_DEBUG=1).")
    ] = False,
) -> None:
    """How many bytes an attention moves at each level of a GPU's memory, and how far that is from the least."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line (by default on this process's arguments) and return the exit code.

    0 good, 1 failed while running, 2 wrong usage. Errors are one line on stderr; `--debug` shows tracebacks.
    """
    given = list(sys.argv[1:] if arguments is None else arguments)
    if not _streams_are_open():
        return _say("standard output is closed: there is nowhere to print to", RunError.exit_code)
    debug = "--debug" in given or os.environ.get("IOSIM_DEBUG", "0") not in ("", "0")
    given = [word for word in given if word != "--debug"]
    try:
        result = typer.main.get_command(app).main(
            args=given or ["--help"], prog_name="iosim", standalone_mode=False
        )
        sys.stdout.flush()
    except BrokenPipeError:
        return _close_stdout()
    except KeyboardInterrupt:
        return _say("interrupted", 1)
    except Exception as error:
        if debug:
            import traceback

            traceback.print_exc()
        return _report(error)
    if result == INTERRUPTED:
        return _say("interrupted", 1)
    return result if isinstance(result, int) else 0


def _streams_are_open() -> bool:
    """False for a closed stdout. A closed stderr swallows; what an encoding cannot write is written as an escape."""
    if sys.stderr is None:
        sys.stderr = Path(os.devnull).open("w", encoding="utf-8")  # noqa: SIM115 - for the rest of the process
    if sys.stdout is None:
        return False
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    return True


def _report(error: Exception) -> int:
    if isinstance(error, IosimError):
        return _say(str(error), error.exit_code)
    if type(error).__name__ == "NoArgsIsHelpError":  # a group without a command: its help is the answer
        print(_message(error), file=sys.stderr)
        return 2
    if hasattr(error, "format_message"):  # what the parser of the command line raises
        return _say(_message(error), int(getattr(error, "exit_code", 2)))
    if isinstance(error, MemoryError):
        detail = f" ({_message(error)})" if str(error) else ""
        return _say(f"out of memory{detail}: ask for a smaller problem or fewer points", RunError.exit_code)
    if isinstance(error, OSError) and error.strerror:
        place = f"{error.filename}: " if error.filename else ""
        return _say(f"{place}{error.strerror.lower()}", RunError.exit_code)
    return _say(f"internal error: {type(error).__name__}: {error} (--debug shows the traceback)", 1)


def _message(error: Exception) -> str:
    return str(error.format_message()) if hasattr(error, "format_message") else str(error)


def _say(message: str, code: int) -> int:
    print(f"iosim: {' '.join(message.split())}", file=sys.stderr)
    return code


def _close_stdout() -> int:
    """The reader of our output has gone (`| head`): nothing is left to say, not even at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 1
