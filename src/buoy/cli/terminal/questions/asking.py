"""Asking: puts the open questions of a run to the person at this terminal, while the run continues.

Invariants: a question that was answered elsewhere, cancelled or paused is withdrawn with one line that says why. An
answer that is being sent is never withdrawn. A wrong answer is refused, and the question is asked again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

from buoy.cli.terminal.live import RunDisplay
from buoy.cli.terminal.output import say
from buoy.cli.terminal.questions.answers import answer_text
from buoy.cli.terminal.questions.prompts import InputEnded, put, refuse
from buoy.cli.terminal.questions.typed import Typed
from buoy.core.explain.phrases import questions
from buoy.core.ids import RunId
from buoy.core.log.document import Document, OpenLeaf
from buoy.errors import BadInput, UserError
from buoy.operations.control.messages import answer_sent

if TYPE_CHECKING:
    from buoy import Client


class Asker:
    """Asks one open question after the other. `advise` tells how to answer from elsewhere."""

    def __init__(
        self, client: Client, view: RunDisplay, *, on_terminal: bool, advise: Callable[[OpenLeaf], str]
    ) -> None:
        self._client = client
        self._view = view
        self._on_terminal = on_terminal
        self._advise = advise
        self._advised: set[str] = set()
        self._typed = Typed()
        self._task: asyncio.Task[None] | None = None
        # The question that stands on the terminal, or stood there last.
        self._asked: str | None = None
        self._sending = False
        self._notice = ""

    @property
    def busy(self) -> bool:
        """Whether a question is on the terminal now."""
        return self._task is not None and not self._task.done()

    async def look(self, document: Document) -> None:
        """Asks open questions, and withdraws those that are no longer open."""
        asked = [leaf for leaf in questions(document) if leaf.question_id is not None]
        if self.busy and not self._sending:
            gone = self._asked not in {leaf.question_id for leaf in asked}
            if gone or document.pause is not None:
                await self._withdraw(await self._why_gone(document))
                # Should it be open again later, it is asked again.
                self._asked = None
        if self._task is not None and self._task.done():
            ended, self._task = self._task, None
            if not ended.cancelled():
                ended.result()
        if document.pause is None:
            self._ask_next(document.run_id, asked)

    def _ask_next(self, run_id: RunId, asked: list[OpenLeaf]) -> None:
        for leaf in asked:
            if self._on_terminal and not self.busy and leaf.question_id != self._asked:
                self._asked = leaf.question_id
                self._task = asyncio.get_running_loop().create_task(self._ask(run_id, leaf))
            elif not self._on_terminal and leaf.question_id not in self._advised:
                self._advised.add(str(leaf.question_id))
                self._view.say(f"waits for an answer: {leaf.name}\n  {self._advise(leaf)}")

    async def close(self) -> None:
        if self.busy:
            await self._withdraw("")

    async def _withdraw(self, notice: str) -> None:
        assert self._task is not None
        self._notice = notice
        self._task.cancel()
        await asyncio.wait([self._task])

    async def _why_gone(self, document: Document) -> str:
        """Why the question is gone. The inbox has an answer before the run sees it."""
        answer = await answer_sent(self._client, document.run_id, self._asked)
        if answer is not None:
            return f"answered elsewhere: {answer_text(answer)}"
        if document.pause is not None and not document.ended:
            why = document.pause.detail or document.pause.reason
            return f"the run is paused: {why}; the question comes again when the run is resumed"
        if document.cancel_requested:
            return "the question was withdrawn: the run was cancelled"
        return "the question was withdrawn: the workflow no longer waits for the answer"

    async def _ask(self, run_id: RunId, leaf: OpenLeaf) -> None:
        assert leaf.question is not None
        with self._view.suspended():
            try:
                while True:
                    answer = await put(leaf.question, self._typed)
                    try:
                        return await self._send(run_id, answer, leaf)
                    except BadInput as error:
                        refuse(error)
            except InputEnded:
                self._on_terminal = False
                say(f"no more input; {self._advise(leaf)}", err=True)
            except UserError as error:
                # Another answer came first: there is nothing left to ask.
                refuse(error)
            except asyncio.CancelledError:
                self._typed.discard()
                say(f"\n{self._notice}" if self._notice else "", err=True)
                raise

    async def _send(self, run_id: RunId, answer: object, leaf: OpenLeaf) -> None:
        self._sending = True
        try:
            await self._client.answer(run_id, answer, leaf.question_id)
        finally:
            self._sending = False
