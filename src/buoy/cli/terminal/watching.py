"""Watching: follows one run that this process drives, until the run ends or a signal asks for a stop."""

from __future__ import annotations

import asyncio

from buoy.cli.terminal.live import RunDisplay
from buoy.cli.terminal.program import wording
from buoy.cli.terminal.questions.asking import Asker
from buoy.cli.terminal.render import local
from buoy.cli.terminal.signals import Stop
from buoy.core.diagnosis.facts import Facts
from buoy.core.explain.phrases import answer_words
from buoy.core.ids import RunId
from buoy.core.log.document import Document, OpenLeaf
from buoy.core.log.lifecycle import Status
from buoy.operations.workers.drive import Driver
from buoy.operations.workers.worker import hear_troubles
from buoy.wiring.worker import Worker

# How often the view is brought up to date.
_LOOK_S = 0.1


class Watch:
    """One run on this terminal."""

    def __init__(self, worker: Worker, view: RunDisplay, stop: Stop, *, store: str | None, ask: bool) -> None:
        self.client = worker.client()
        self._runner = worker.runner
        self._view = view
        self._stop = stop
        self._words = wording(store, local)
        self._ask = ask
        self._seen = 0
        self._trouble = ""
        hear_troubles(worker.runner, self._print_trouble, self._print_over)

    def _print_trouble(self, text: str) -> None:
        """Shows a trouble once. The run continues by itself when it can; a person may have to act."""
        if text != self._trouble:
            self._trouble = text
            self._view.say(f"trouble: {text}")

    def _print_over(self, text: str) -> None:
        if self._trouble:
            self._trouble = ""
            self._view.say(text)

    async def until_end(self, run_id: RunId, *, new: bool) -> None:
        """Returns when the run has ended, waits for a change of its code, or a stop was asked for."""
        driver = Driver(self.client, self._runner, run_id, self._view.say)
        await driver.announce()
        # Of a run that was there before, only what happens from now on is shown.
        self._seen = 0 if new else (await self.client.record(run_id)).document.head_seq
        asker = Asker(self.client, self._view, on_terminal=self._ask, advise=lambda leaf: self._advice(run_id, leaf))
        stopped = asyncio.ensure_future(self._stop.asked.wait())
        ended: asyncio.Future[object] | None = None
        try:
            while not stopped.done():
                document, facts = await driver.tend()
                await self._show(driver, document, facts, asker)
                if document.ended or document.head_seq >= self._seen:  # else more has been shown than it knows of
                    await asker.look(document)
                if document.ended or self._hopeless(driver, document):
                    return
                if ended is None or ended.done():
                    ended = driver.wait_end()
                awaited = [each for each in (stopped, ended) if each is not None]
                await asyncio.wait(awaited, timeout=_LOOK_S, return_when=asyncio.FIRST_COMPLETED)
        finally:
            stopped.cancel()
            await asker.close()

    async def _show(self, driver: Driver, document: Document, facts: Facts | None, asker: Asker) -> None:
        if self._view.wants_events:
            events = await driver.events(self._seen)
            self._seen += len(events)
            self._view.events(events)
        if not asker.busy:
            now = max(self.client.clock.now(), document.updated_at) if facts is None else facts.now
            elsewhere = None if facts is None else facts.progress
            self._view.show(document, driver.progress or elsewhere, now)

    def _hopeless(self, driver: Driver, document: Document) -> bool:
        """Whether only a change of the code ends the pause. A pause that a person made is waited for."""
        by_hand = document.pause is not None and document.pause.reason == "user"
        return document.status is Status.PAUSED and not by_hand and not driver.driven_here

    def _advice(self, run_id: RunId, leaf: OpenLeaf) -> str:
        assert leaf.question is not None
        example = answer_words(leaf.question)
        command = self._words.command("answer", run_id, *example, "--question", leaf.question_id or "")
        return f"answer it with: {command}"
