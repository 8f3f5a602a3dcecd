"""
The command `commsim`: its subcommands, and the one place where errors become exit codes.

0 done; 1 a comparison or check failed; 2 wrong usage or scenario; 3 unreadable trace;
4 deadlock in the workload; 5 it does not fit in memory. Nothing a user can cause ends in a
traceback.
"""

from __future__ import annotations

import atexit
import gc
import io
import os
import re
import signal
import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, NoReturn

import click

from commsim._version import __version__
from commsim.cli.commands import COMMANDS, load
from commsim.cli.terminal import (
    closed_stream,
    named_stdout,
    never_failing,
    output_refused,
    quiet_group,
    reader_left,
    write_commands,
)
from commsim.errors import CommsimError, did_you_mean

__all__ = ["call", "commsim", "entry"]

_LONG = re.compile(r"[^\s:]{500,}")
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029]")  # messages have lines and tabs
_TWO_LINES = re.compile(r"[^\n/]*\n[^\n/]*")  # in a name that a path has
_INTERRUPTED, _PIPE_CLOSED, _TERMINATED = 130, 141, 143  # as shells report the signals


_OTHER_NAMES = {
    "simulate": "run", "sim": "run", "benchmark": "bench", "trace": "replay",
    "diff": "compare", "optimize": "advise", "search": "advise", "recommend": "advise",
    "list": "presets", "topology": "topo", "export": "convert", "report": "run",
    "gui": "explore", "ui": "explore", "dashboard": "explore", "serve": "explore",
    "whatif": "next", "sensitivity": "next", "tornado": "next", "bottleneck": "next",
}  # fmt: skip


class _Commands(click.Group):
    """The group of all commands: says where an option belongs that stands before the command.

    A command's module is imported when it is asked for: nobody runs twenty at once.
    """

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of all commands."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return a command, imported from its module."""
        return load(cmd_name) if cmd_name in COMMANDS else None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the commands by what they are for."""
        commands = ((name, self.get_command(ctx, name)) for name in COMMANDS)
        write_commands(((name, made) for name, made in commands if made is not None), formatter)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command; another name for it leads to the one that it has here."""
        if args and args[0] not in COMMANDS and not args[0].startswith("-"):
            other = _OTHER_NAMES.get(args[0])
            hint = f" Here it is `commsim {other}`." if other else ""
            hint = hint or did_you_mean(args[0], COMMANDS) or _as_scenario(args[0])
            raise click.UsageError(
                f"there is no command {args[0]!r}.{hint} `commsim --help` lists them.", ctx
            )
        return super().resolve_command(ctx, args)

    def make_context(
        self,
        info_name: str | None,
        args: list[str],
        parent: click.Context | None = None,
        **extra: Any,
    ) -> click.Context:
        """Parse what stands before the command."""
        words = list(args)
        try:
            return super().make_context(info_name, args, parent, **extra)
        except click.NoSuchOption as error:
            named = next((word for word in words if word in COMMANDS), "COMMAND")
            raise click.UsageError(
                f"{error.option_name}: options stand behind the command they are for, like"
                f" commsim {named} {error.option_name}. `commsim {named} --help` lists them.",
                error.ctx,
            ) from None


def _as_scenario(word: str) -> str:
    """Say how to run a scenario whose name stands where a command is expected, "" for none."""
    from commsim.scenario import scenario_names

    known = word.endswith((".yaml", ".yml")) or word in scenario_names()
    return f" `commsim run {word}` runs a scenario." if known else ""


@click.group(
    cls=_Commands,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(__version__, prog_name="commsim", message="%(prog)s %(version)s")
@quiet_group
def commsim() -> None:
    """Simulate and look at the collective communication of training clusters."""


class _Terminated(KeyboardInterrupt):
    """SIGTERM: what is open is cleaned up as after Ctrl-C."""


def _terminate(*_: object) -> NoReturn:
    raise _Terminated


def entry() -> NoReturn:
    """Run the command line and exit with its code."""
    signal.signal(signal.SIGTERM, _terminate)
    if signal.getsignal(signal.SIGINT) != signal.SIG_IGN:  # a shell's background: as it was
        signal.signal(signal.SIGINT, signal.default_int_handler)
    # NumPy's OpenBLAS starts a thread per core when it is loaded, for matrices larger than ours.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    # A shell's `>&-` leaves none: files are written all the same.
    sys.stdout = sys.stdout or closed_stream()
    sys.stderr = sys.stderr or io.TextIOWrapper(io.FileIO(os.devnull, "w"), "utf-8")
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout = named_stdout(sys.stdout)
    if isinstance(sys.stderr, io.TextIOWrapper):
        sys.stderr = never_failing(sys.stderr)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal without "–" or "µ" prints "?"
    code = call(sys.argv[1:])
    signal.signal(signal.SIGTERM, signal.SIG_DFL)  # the way out is no place to raise in
    if code in (_INTERRUPTED, _TERMINATED):
        _leave_at_once(code)
    gc.disable()  # millions of objects are not worth looking at on the way out
    sys.exit(code)


def _leave_at_once(code: int) -> NoReturn:
    """Exit without freeing what a run has made: that takes a second for millions of objects."""
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError):
            stream.flush()
    os._exit(code)


def call(arguments: Sequence[str]) -> int:
    """Run `commsim ARGUMENTS`; return the exit code."""
    try:
        code = commsim.main(list(arguments), prog_name="commsim", standalone_mode=False)
        if sys.stdout is not None:  # a shell's `>&-` leaves none
            sys.stdout.flush()
        if refused := output_refused():
            raise refused
        if reader_left():
            return _PIPE_CLOSED
        return code if isinstance(code, int) else 0
    except click.ClickException as error:
        told = io.StringIO()
        error.show(told)
        click.echo(_shown(told.getvalue(), arguments), nl=False, err=True)
        return error.exit_code
    except SystemExit:  # click leaves so where nobody reads what it prints
        return _PIPE_CLOSED
    except CommsimError as error:
        return _fail(str(error), error.exit_code, arguments)
    except (KeyboardInterrupt, click.Abort) as error:
        if isinstance(error.__cause__ or error, _Terminated):  # click makes an Abort of it
            return _fail("terminated.", _TERMINATED)
        if isinstance(error.__cause__, EOFError):  # of this too
            return _fail(
                f"a file is cut off ({error.__cause__}). If it is none of yours, a full disk may"
                f" have cut what Python keeps of commsim: delete the folders __pycache__ in"
                f" {os.path.dirname(os.path.dirname(__file__))}.",
                2,
            )
        return _fail("interrupted.", _INTERRUPTED)
    except BrokenPipeError:
        # Whoever read our output has left; Python would complain again when it flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return _PIPE_CLOSED
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        return _fail(f"{where}{error.strerror or error}.", 2, arguments)
    except MemoryError:
        return _fail("out of memory. Simulate fewer ranks, steps or sizes at once.", 2)


def _fail(message: str, code: int, arguments: Sequence[str] = ()) -> int:
    click.echo(f"commsim: {_shown(message, arguments)}", err=True)
    return code


def _shown(message: str, arguments: Sequence[str]) -> str:
    """Return a message in which nothing that it quotes hides what it says.

    Words of hundreds of characters are cut; control characters are escaped, ends of lines where
    they are of the `arguments`: messages have some of their own.
    """
    for name in _TWO_LINES.findall("/".join(arguments)):
        if name.strip():
            message = message.replace(name, name.replace("\n", r"\n"))
    message = _CONTROL.sub(lambda one: one[0].encode("unicode_escape").decode(), message)
    return _LONG.sub(lambda word: f"{word[0][:60]}... ({len(word[0]):,} characters)", message)
