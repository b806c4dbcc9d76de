"""The person: answers and signals as the script says. Knows only the store, and forgets all at a crash."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from buoy.core.ids import RunId
from buoy.core.log import events as e
from buoy.core.log.document import Document
from buoy.engine.client.client import Client
from buoy.engine.read_log import read_log
from buoy.errors import BadInput, UnknownQuestion, WrongState
from buoy.ports.records import RunQuery
from buoy.testing.script import Saying, Script

_RUNS_MAX = 1000


class Person:
    """Speaks to every run that is open. `errors` has what the runs would not take: then the script is wrong."""

    def __init__(self, client: Client, script: Script) -> None:
        self._client = client
        self._script = script
        self._said: set[tuple[str, str]] = set()
        self._greeted: set[str] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._asked: dict[RunId, list[tuple[str, str]]] = {}
        self.errors: list[BaseException] = []

    @property
    def unused(self) -> list[str]:
        """The entries of the script that no question and no wait has called for until now, each as a sentence."""
        return self._script.unused([each for asked in self._asked.values() for each in asked])

    async def look(self) -> None:
        """Sees what is open now, and says what is due, now or later."""
        if not len(self._script):
            return
        page = await self._client.store.find_runs(RunQuery(), None, _RUNS_MAX)
        for record in page.runs:
            document = record.document
            waits = any(leaf.kind in ("ask", "signal") for leaf in document.open)
            if not document.ended and (waits or document.run_id not in self._greeted):
                self._greeted.add(document.run_id)
                await self._serve(document)

    async def _serve(self, document: Document) -> None:
        log = await read_log(self._client.store, document.run_id)
        asked = self._asked[document.run_id] = list(asked_in(log))
        for saying in self._script.sayings(document, asked):
            mark = (document.run_id, saying.key)
            if mark not in self._said:
                self._said.add(mark)
                task = asyncio.get_running_loop().create_task(self._say(document.run_id, saying))
                self._tasks.add(task)
                task.add_done_callback(self._spoken)

    async def _say(self, run_id: RunId, saying: Saying) -> None:
        await asyncio.sleep(max(saying.due_at - self._client.clock.now(), 0.0))
        try:
            if saying.question_id is not None:
                await self._client.answer(run_id, saying.value, saying.question_id)
            elif saying.signal is not None:
                await self._client.signal(run_id, saying.signal, saying.value, f"script-{saying.key}".replace("/", "-"))
        except (WrongState, UnknownQuestion):
            return  # it was said before the crash, or comes too late: as in life
        except BadInput as error:
            raise BadInput(f"{saying.where}: {error}" if saying.where else str(error)) from error

    def _spoken(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self.errors.append(error)


def asked_in(log: Iterable[e.Event]) -> Iterable[tuple[str, str]]:
    """Every question and signal wait of a log, in order."""
    for event in log:
        if isinstance(event.body, e.InteractionRequested):
            yield event.body.leaf, event.body.question.title
        elif isinstance(event.body, e.SignalWaited):
            yield event.body.leaf, f"signal {event.body.name}"
