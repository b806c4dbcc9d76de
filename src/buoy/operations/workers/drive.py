"""Drive: keeps one run driven, in this process if no other runner drives it.

Invariants: a run is taken from another runner only on proof that the runner is dead. If two processes try at once, the
claim in the log decides. A log that cannot be read raises: another try would not help.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import msgspec

from buoy.core.diagnosis.facts import Facts, ProgressFacts, RunnerFacts
from buoy.core.explain.phrases import runner_text
from buoy.core.ids import RunId, RunnerId, orchestrate_task_id
from buoy.core.log.document import Document, document
from buoy.core.log.events import Event
from buoy.core.log.lifecycle import Status
from buoy.core.times import StoreTime
from buoy.engine.client.client import Client
from buoy.engine.process.runner import Runner
from buoy.engine.read_log import read_log
from buoy.errors import StoreUnusable
from buoy.ports.records import DEREGISTERED, Evidence, RunQuery, RunRecord, Task
from buoy.recovery.evidence import facts_of_page
from buoy.recovery.fleet import Fleet, read_fleet
from buoy.recovery.sweep.resume_paused import takes_input

_CHILDREN_MAX = 200


class Driver:
    """One run, driven or watched by this process."""

    def __init__(
        self, client: Client, runner: Runner, run_id: RunId, say: Callable[[str], None], *, children: bool = True
    ) -> None:
        self.run_id = run_id
        self._client = client
        self._runner = runner
        self._say = say
        self._said = ""
        self._children: dict[RunId, Driver] = {}
        self._tends_children = children

    async def announce(self) -> None:
        """Publishes that this process tends the run. Otherwise others find no worker for it while no runner holds it,
        for example while it is paused."""
        info = self._runner.info
        if self.run_id not in info.tends:
            self._runner.info = msgspec.structs.replace(info, tends=(*info.tends, self.run_id))
            await self._client.store.register(self._runner.info)

    async def tend(self) -> tuple[Document, Facts | None]:
        """The current state of the run. If no runner drives it, this process takes it."""
        if self._runner.gone is not None:
            raise StoreUnusable(f"this process was declared gone and has stopped: {self._runner.gone}")
        execution = self._runner.executions.get(self.run_id)
        if execution is not None and not execution.ended:
            summary = document(execution.state)
            await self._tend_children(summary)
            return summary, None
        record = await self._client.record(self.run_id)
        if record.document.ended:
            return record.document, None
        fleet = await read_fleet(self._client.store, self._client.liveness)
        facts = (await facts_of_page(self._client.store, fleet, [record]))[0]
        summary = record.document
        if execution is None:
            await self._take_if_free(record, facts, fleet)
            if summary.status is Status.PAUSED:
                summary = await self._since_taken()
        await self._tend_children(summary)
        return summary, facts

    async def _since_taken(self) -> Document:
        """The run after it was perhaps taken here: that may have ended its pause, and the run with it."""
        execution = self._runner.executions.get(self.run_id)
        return (await self._client.record(self.run_id)).document if execution is None else document(execution.state)

    @property
    def driven_here(self) -> bool:
        """Whether this process holds the run now."""
        return self.run_id in self._runner.executions

    @property
    def progress(self) -> ProgressFacts | None:
        """What a step of the run reported last in this process."""
        found = self._runner.progress.get(self.run_id)
        return None if found is None else ProgressFacts(found.at, found.done, found.total, found.note, found.leaf)

    def wait_end(self) -> asyncio.Future[Any] | None:
        """Done when the run has ended in this process; None if it is not driven here."""
        return self._runner.wait_end(self.run_id)

    async def events(self, after: int) -> list[Event]:
        """The events of the run after that number."""
        return await read_log(self._client.store, self.run_id, after)

    async def _tend_children(self, parent: Document) -> None:
        """Drives the children that the run waits for, if no other runner does."""
        if not self._tends_children or not any(leaf.kind == "child" for leaf in parent.open):
            return
        page = await self._client.runs(RunQuery(parent=self.run_id), limit=_CHILDREN_MAX)
        for record in page.runs:
            doc = record.document
            if doc.ended or self._client.registry.get(doc.workflow) is None:
                continue
            child = self._children.setdefault(
                doc.run_id, Driver(self._client, self._runner, doc.run_id, lambda text: None)
            )
            await child.tend()

    async def _take_if_free(self, record: RunRecord, facts: Facts, fleet: Fleet) -> None:
        holder = facts.holder
        if holder is not None and holder.id == self._runner.id:
            return  # it is just being given back
        if self._runner.intake.isolating:
            return  # another run is to be alone here, or this one waits until nothing else is driven
        if holder is not None and not holder.gone:
            self._say_once(f"{runner_text(holder)} drives this run; watching it")
            return
        if record.document.status is Status.PAUSED and not await self._may_go_on(record):
            return
        await self._client.state(self.run_id)  # raises if the log cannot be read
        cause, evidence = _why(record, holder or self._former_owner(record, fleet))
        if cause == "taken_over":
            self._say_once(f"taking the run over from {evidence.get('runner')}: {evidence.get('proof')}")
        doc, envelope = record.document, record.envelope
        task_id = envelope.orchestrator_task_id or orchestrate_task_id(self.run_id, envelope.generation)
        await self._runner.intake.take(
            Task(
                task_id,
                self.run_id,
                doc.workflow,
                doc.queue,
                record.due_at or StoreTime(0.0),
                cause,
                evidence,
                claimed_at=await self._client.store.now(),
            ),
            free_of=(None if holder is None else RunnerId(holder.id),),
        )

    async def _may_go_on(self, record: RunRecord) -> bool:
        """Whether a message waits for the paused run, or this process has the code that the run waits for."""
        if record.due_at is not None and record.due_at <= await self._client.store.now():
            return True
        doc, workflow = record.document, self._client.registry.get(record.document.workflow)
        if doc.pause is None or workflow is None:
            return False
        if doc.pause.reason == "input":
            return await takes_input(self._client, doc)
        return doc.pause.reason == "version" and workflow.version == doc.version

    def _former_owner(self, record: RunRecord, fleet: Fleet) -> RunnerFacts | None:
        owner = record.document.owner
        return None if owner is None else fleet.all.get(RunnerId(owner))

    def _say_once(self, text: str) -> None:
        if text != self._said:
            self._said = text
            self._say(text)


def _why(record: RunRecord, owner: RunnerFacts | None) -> tuple[str, Evidence]:
    """Cause and evidence of a claim, for the log."""
    match record.document.status:
        case Status.PENDING:
            return "created", {}
        case Status.INTERRUPTED:
            return "interrupted", {}
        case _ if owner is not None and owner.gone and owner.gone_why != DEREGISTERED:
            proof: Evidence = dict(owner.proof) if owner.proof else {"proof": owner.gone_why or "not registered"}
            return "taken_over", {"runner": owner.id, "pid": owner.pid, **proof}
        case _:
            return "woken", {}
