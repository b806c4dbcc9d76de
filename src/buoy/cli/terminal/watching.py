"""Watching: follows one run that this process drives, until it ends or somebody asks the process to stop."""

from __future__ import annotations

import asyncio

from buoy.cli.terminal.asking import Asker
from buoy.cli.terminal.driving import Driver
from buoy.cli.terminal.live import View
from buoy.cli.terminal.program import wording
from buoy.cli.terminal.render import local
from buoy.cli.terminal.signals import Stop
from buoy.core.diagnosis.facts import Facts, ProgressFacts
from buoy.core.explain.phrases import answer_words
from buoy.core.ids import RunId
from buoy.core.log.document import Document, OpenLeaf
from buoy.core.log.lifecycle import Status
from buoy.engine.read_log import read_log
from buoy.wiring import Worker

# How often the view is brought up to date.
_LOOK_S = 0.1


class Watch:
    """One run on this terminal."""

    def __init__(self, worker: Worker, view: View, stop: Stop, *, store: str | None, ask: bool) -> None:
        self.client = worker.client()
        self._runner = worker.runner
        self._view = view
        self._stop = stop
        self._words = wording(store, local)
        self._ask = ask
        self._seen = 0
        self._trouble = ""
        worker.runner.trouble_log.on_note = worker.runner.journal.on_error = self._tell_trouble

    def _tell_trouble(self, text: str) -> None:
        """The run goes on by itself when it can; a person may have to see to that. The same one is said once."""
        if text != self._trouble:
            self._trouble = text
            self._view.say(f"trouble: {text}")

    async def until_end(self, run_id: RunId, *, new: bool) -> None:
        """Returns when the run has ended, waits for a change of its code, or a stop was asked for."""
        driver = Driver(self.client, self._runner, run_id, self._view.say)
        # Of a run that was there before, only what happens from now on is shown.
        self._seen = 0 if new else (await self.client.record(run_id)).document.head_seq
        asker = Asker(self.client, self._view, on_terminal=self._ask, advise=lambda leaf: self._advice(run_id, leaf))
        stopped = asyncio.ensure_future(self._stop.asked.wait())
        ended: asyncio.Future[object] | None = None
        try:
            while not stopped.done():
                document, facts = await driver.tend()
                await self._show(document, facts, asker)
                if document.ended or document.head_seq >= self._seen:  # else more has been shown than it knows of
                    await asker.look(document)
                if document.ended or self._hopeless(document):
                    return
                if ended is None or ended.done():
                    ended = self._runner.wait_end(run_id)  # type: ignore[assignment]
                awaited = [each for each in (stopped, ended) if each is not None]
                await asyncio.wait(awaited, timeout=_LOOK_S, return_when=asyncio.FIRST_COMPLETED)
        finally:
            stopped.cancel()
            await asker.close()

    async def _show(self, document: Document, facts: Facts | None, asker: Asker) -> None:
        if self._view.wants_events:
            events = await read_log(self.client.store, document.run_id, self._seen)
            self._seen += len(events)
            self._view.events(events)
        if not asker.busy:
            now = max(self.client.clock.now(), document.updated_at) if facts is None else facts.now
            elsewhere = None if facts is None else facts.progress
            self._view.show(document, self._progress(document.run_id) or elsewhere, now)

    def _progress(self, run_id: RunId) -> ProgressFacts | None:
        found = self._runner.progress.get(run_id)
        return None if found is None else ProgressFacts(found.at, found.done, found.total, found.note, found.leaf)

    def _hopeless(self, document: Document) -> bool:
        """A pause that ends by somebody's word is waited for; one that needs a change of the code is not."""
        by_hand = document.pause is not None and document.pause.reason == "user"
        return document.status is Status.PAUSED and not by_hand and document.run_id not in self._runner.executions

    def _advice(self, run_id: RunId, leaf: OpenLeaf) -> str:
        assert leaf.question is not None
        example = answer_words(leaf.question)
        command = self._words.command("answer", run_id, *example, "--question", leaf.question_id or "")
        return f"answer it with: {command}"
