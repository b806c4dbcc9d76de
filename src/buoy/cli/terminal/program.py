"""Program: what all commands share: options, exit codes and the form of errors.

Invariants: an error that a user can cause is one line, never a traceback; with `--json` it is JSON on standard output.
An unexpected error is a bug of Buoy and shows its traceback. Every command loads this module, even `--version`: imports
that only some commands need are inside of functions.
"""

from __future__ import annotations

import importlib
import signal
import sys
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from enum import IntEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from buoy.cli.terminal.border import check_words, hear_interrupts, open_streams
from buoy.cli.terminal.outlets import NoRoom, name_lack_of_room, no_room, outlive_readers, silence
from buoy.cli.terminal.output import print_json, say
from buoy.errors import BadInput, Problem, RunCancelled, StoreUnusable, Unavailable, Unclear, UnknownQuestion, UserError

if TYPE_CHECKING:
    from buoy import Client
    from buoy.core.explain.phrases import Wording
    from buoy.wiring.inspection import Inspector

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])
# What every store in a folder has; see the layout of the object store.
_MARK = "buoy.json"


class Exit(IntEnum):
    """Every exit code of the program. Documented in docs/cli.md."""

    OK = 0
    FAILED = 1
    BAD_INPUT = 2
    CANCELLED = 3
    NOT_ENDED = 4
    STORE = 5
    SIGINT = 130
    SIGTERM = 143


def need_terminal() -> None:
    """Refuses to ask where no person can answer: there `--yes` is required."""
    if not sys.stdin.isatty():
        raise BadInput("no terminal to ask for confirmation; add --yes to do it, or --dry-run to look")


def confirm(question: str) -> None:
    """Asks for confirmation on a terminal; elsewhere `--yes` is required."""
    need_terminal()
    if not click.confirm(question, default=False, err=True):
        raise BadInput("not confirmed; nothing was done")


class Program(click.Group):
    """The group of all commands. A verb is loaded when it is asked for."""

    def __init__(self, *args: Any, verbs: Mapping[str, str], **options: Any) -> None:
        super().__init__(*args, **options)
        self._verbs = verbs

    def list_commands(self, ctx: click.Context) -> list[str]:
        """In the order in which a newcomer needs them."""
        return list(self._verbs)

    def get_command(self, ctx: click.Context | None, cmd_name: str) -> click.Command | None:
        if cmd_name in self._verbs and cmd_name not in self.commands:
            module, _, name = self._verbs[cmd_name].partition(":")
            self.commands[cmd_name] = getattr(importlib.import_module(f"buoy.cli.{module}"), name)
        return self.commands.get(cmd_name)

    def every_command(self) -> dict[str, click.Command]:
        """All of them, loaded."""
        found = {name: self.get_command(None, name) for name in self._verbs}
        return {name: command for name, command in found.items() if command is not None}

    def make_context(self, *args: Any, **extra: Any) -> click.Context:
        with _read_to_the_end():
            return super().make_context(*args, **extra)

    def invoke(self, ctx: click.Context) -> Any:
        with _read_to_the_end():
            return super().invoke(ctx)

    def main(  # type: ignore[override]
        self, args: Sequence[str] | None = None, prog_name: str | None = None, **extra: Any
    ) -> None:
        given = list(sys.argv[1:] if args is None else args)
        as_json = "--json" in given
        extra.pop("standalone_mode", None)
        open_streams()
        name_lack_of_room()
        try:
            hear_interrupts()
            check_words(given)
            found = super().main(given, prog_name or "buoy", standalone_mode=False, **extra)
            code = int(found) if isinstance(found, int) else Exit.OK
            sys.stdout.flush()
        except click.exceptions.Exit as done:
            code = done.exit_code
        except click.ClickException as error:
            code = print_usage(error, as_json=as_json)
        except Problem as error:
            code = tell(error, as_json=as_json)
        except (click.Abort, KeyboardInterrupt):
            code = Exit.SIGINT
        except BrokenPipeError:
            # The reader closed the pipe. Python would complain when it flushes at exit.
            code = Exit.OK
            silence(sys.stdout.fileno())
        except NoRoom as error:
            silence(sys.stdout.fileno())
            click.echo(f"error: {no_room(1, error)}", err=True)
            code = Exit.FAILED
        sys.exit(code)


@contextmanager
def _read_to_the_end() -> Iterator[None]:
    """Ends a command whose reader left (`| head -1`) without an error. Click would end it with code 1."""
    try:
        yield
    except BrokenPipeError as error:
        raise click.exceptions.Exit(Exit.OK) from error


def tell(error: Problem, *, as_json: bool) -> Exit:
    """Prints what is wrong in one line, and returns the exit code, which counts even if the text has no reader."""
    outlive_readers()
    if as_json:
        print_json({"error": {"type": type(error).__name__, "message": str(error), **_facts(error)}})
    else:
        say(f"error: {error}", err=True)
    return exit_code(error)


def _facts(error: Problem) -> dict[str, str]:
    """What a program decides on beside the type of the error."""
    match error:
        case UnknownQuestion(reason=reason):
            return {"reason": reason}
        case Unclear(key=key):
            return {"key": key}
    return {}


def print_usage(error: click.ClickException, *, as_json: bool) -> int:
    outlive_readers()
    if as_json:
        print_json({"error": {"type": "Usage", "message": error.format_message()}})
    elif isinstance(error, click.exceptions.NoArgsIsHelpError):
        error.show()
    else:
        path = error.ctx.command_path if isinstance(error, click.UsageError) and error.ctx else "buoy"
        say(f"error: {error.format_message()} (see '{path} --help')", err=True)
    return Exit.BAD_INPUT


def exit_code(error: Problem) -> Exit:
    """The exit code of an error: it tells a script what to do next."""
    if isinstance(error, UserError):
        return Exit.BAD_INPUT
    if isinstance(error, StoreUnusable | Unavailable):
        return Exit.STORE
    return Exit.CANCELLED if isinstance(error, RunCancelled) else Exit.FAILED


def shared_options(command: F) -> F:
    """`--store` and `--json`, which every command has."""
    store = click.option(
        "--store",
        metavar="URL",
        help="The store. Default: $BUOY_STORE, then 'store' in buoy.toml, then the nearest .buoy/buoy.db.",
    )
    as_json = click.option("--json", "as_json", is_flag=True, help="Print JSON for programs.")
    return store(as_json(command))


calls_option = click.option(
    "--allow-calls", "prefixes", metavar="MODULE", multiple=True,
    help="Let specs call functions of this module and its submodules; also '[worker] calls' in buoy.toml.",
)  # fmt: skip


def duration(ctx: click.Context, param: click.Parameter, value: str | None) -> float | None:
    """An option that is a duration."""
    from buoy.core.durations import seconds

    try:
        return None if value is None else seconds(value, param.opts[0])
    except BadInput as error:
        raise click.BadParameter(str(error)) from error


def span(ctx: click.Context, param: click.Parameter, value: str | None) -> float | None:
    """An option that is a duration; a plain number counts seconds."""
    from buoy.core.durations import seconds

    try:
        return None if value is None else seconds(float(value), param.opts[0])
    except ValueError:
        return duration(ctx, param, value)
    except BadInput as error:
        raise click.BadParameter(str(error)) from error


def size(ctx: click.Context, param: click.Parameter, value: str | None) -> int | None:
    """An option that is an amount of memory."""
    from buoy.core.spec.values import memory_bytes

    try:
        return None if value is None else memory_bytes(value)
    except BadInput as error:
        raise click.BadParameter(str(error)) from error


def machines(ctx: click.Context, param: click.Parameter, value: str | None) -> tuple[str, ...] | None:
    """An option that is a list of machines."""
    from buoy.core.batch.node_list import node_names

    try:
        return None if value is None else node_names(value)
    except BadInput as error:
        raise click.BadParameter(str(error)) from error


@asynccontextmanager
async def connected(store: str | None) -> AsyncIterator[Client]:
    """A client of a store that exists."""
    from buoy.config import person
    from buoy.wiring.app import open_client

    async with open_client(check_store(store), actor=person()) as client:
        yield client


@asynccontextmanager
async def inspected(store: str | None) -> AsyncIterator[Inspector]:
    """A store that exists, for reading only. Does not load the engine, which takes long."""
    from buoy.wiring.inspection import inspect_store

    async with inspect_store(check_store(store)) as found:
        yield found


def check_store(store: str | None) -> str:
    """The URL of a store that exists: a command that only reads must not create one from a mistyped name."""
    from buoy.config import configured_store, store_path

    url = configured_store(store)
    place = store_path(url)
    if place is None:
        return url
    if not _there(place, folder=url.startswith("file:")):
        raise StoreUnusable(f"no store at {place.absolute()}; `buoy run`, `buoy start` and `buoy worker` create one")
    if _is_empty(place):
        raise StoreUnusable(
            f"no store at {place.absolute()}: the file is empty; if runs were in it, restore it from a backup; `buoy "
            "run`, `buoy start` and `buoy worker` make a store of it"
        )
    return url


def _is_empty(place: Path) -> bool:
    """Whether a file was cut off or never filled. A look must not make a new store out of it."""
    try:
        return place.is_file() and not place.stat().st_size
    except OSError:
        return False  # the store itself says best what is wrong with it


def _there(place: Path, *, folder: bool) -> bool:
    """Whether a store is there: a file, or a folder with the mark of a store."""
    try:
        return (place / _MARK).exists() if folder and place.is_dir() else place.exists()
    except OSError:
        return True  # the store itself says best what is wrong with it


def go(work: Coroutine[Any, Any, T]) -> T:
    """Runs a command's coroutine."""
    import asyncio

    return asyncio.run(_woken(work))


async def _woken(work: Coroutine[Any, Any, T]) -> T:
    """Lets every signal wake the loop. The handler that `asyncio.run` sets for Ctrl-C does not: a signal that comes
    right before the loop begins to wait would count only when something else happens."""
    import asyncio

    with suppress(ValueError, RuntimeError):  # in another thread than the main one there are no signals
        # Any handler of the loop's own makes every signal wake it.
        asyncio.get_running_loop().add_signal_handler(signal.SIGCONT, _nothing)
    return await work


def _nothing() -> None: ...


def wording(store: str | None, when: Callable[[float], str]) -> Wording:
    """The wording for this terminal. Advice names the store if the person did."""
    from buoy.core.explain.phrases import Wording
    from buoy.core.urls import reaching_url

    return Wording(when, None if store is None else reaching_url(store))
