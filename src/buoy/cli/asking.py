"""Asking: puts the open questions of a run to the person at this terminal, while the run goes on.

Invariants: the terminal is read without a thread, so that a stop is never held up by a question that nobody answers. A
question that was answered from elsewhere is taken back. A wrong answer is told, and the question asked again.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable

import click

from buoy.cli.answers import numbered, parse_answer, prompt, prompt_lines
from buoy.cli.live import View
from buoy.core.document import Document, OpenLeaf
from buoy.core.phrases import questions
from buoy.engine.client import Client
from buoy.errors import UserError

_READ_BYTES = 65_536


class Typed:
    """Lines from standard input, one at a time."""

    def __init__(self) -> None:
        self._kept = b""

    async def line(self) -> str | None:
        """The next line; None at the end of the input."""
        while b"\n" not in self._kept:
            chunk = await self._chunk()
            if not chunk:
                rest, self._kept = self._kept, b""
                return rest.decode(errors="replace") if rest else None
            self._kept += chunk
        first, _, self._kept = self._kept.partition(b"\n")
        return first.decode(errors="replace")

    async def _chunk(self) -> bytes:
        try:
            descriptor = sys.stdin.fileno()
            await _readable(descriptor)
        except (OSError, ValueError):
            # A file, or no real descriptor at all: it never makes anybody wait.
            return sys.stdin.readline().encode()
        return os.read(descriptor, _READ_BYTES)


async def _readable(descriptor: int) -> None:
    loop = asyncio.get_running_loop()
    ready: asyncio.Future[None] = loop.create_future()

    def found() -> None:
        if not ready.done():
            ready.set_result(None)

    loop.add_reader(descriptor, found)
    try:
        await ready
    finally:
        loop.remove_reader(descriptor)


class Asker:
    """Asks one open question after the other. `advise` tells how to answer from elsewhere."""

    def __init__(self, client: Client, view: View, *, on_terminal: bool, advise: Callable[[OpenLeaf], str]) -> None:
        self._client = client
        self._view = view
        self._on_terminal = on_terminal
        self._advise = advise
        self._advised: set[str] = set()
        self._typed = Typed()
        self._task: asyncio.Task[None] | None = None
        self._asked: str | None = None

    @property
    def busy(self) -> bool:
        """Whether a question stands on the terminal."""
        return self._task is not None and not self._task.done()

    def look(self, document: Document) -> None:
        """Asks what is open and takes back what no longer is."""
        asked = [leaf for leaf in questions(document) if leaf.question_id is not None]
        if self._task is not None and self._task.done():
            self._task.result()
            self._task = None
        if self._task is not None and self._asked not in {leaf.question_id for leaf in asked}:
            self._task.cancel()
        for leaf in asked:
            if self._on_terminal and not self.busy and leaf.question_id != self._asked:
                self._asked = leaf.question_id
                self._task = asyncio.get_running_loop().create_task(self._ask(document.run_id, leaf))
            elif not self._on_terminal and leaf.question_id not in self._advised:
                self._advised.add(str(leaf.question_id))
                self._view.say(f"waits for an answer: {leaf.name}\n  {self._advise(leaf)}")

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    async def _ask(self, run_id: str, leaf: OpenLeaf) -> None:
        assert leaf.question is not None
        with self._view.suspended():
            click.echo("\n".join(prompt_lines(leaf.question)), err=True)
            while True:
                click.echo(prompt(leaf.question), nl=False, err=True)
                text = await self._typed.line()
                if text is None:
                    self._on_terminal = False
                    click.echo(f"\nno more input; {self._advise(leaf)}", err=True)
                    return
                try:
                    answer = parse_answer(leaf.question, numbered(leaf.question, text))
                    await self._client.answer(run_id, answer, leaf.question_id)
                    return
                except UserError as error:
                    click.echo(f"not accepted: {error}", err=True)
