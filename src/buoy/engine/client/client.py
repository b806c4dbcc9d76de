"""Client: starts runs and sends them requests. Every request goes through the run's inbox.

Invariants: `start` returns when the run is durable; an id that exists already gives back that run, never a second one.
A request is checked before it is stored, so that a wrong answer or an impossible request changes nothing. After an
unclear answer the store is asked what happened; `Unclear` has the key with which a request may be made again.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Mapping
from functools import lru_cache
from typing import Any, Literal, ParamSpec, TypeVar

import msgspec

from buoy.core.ids import RunId, check_dedupe, check_name, check_run_id
from buoy.core.limits import MESSAGE_BYTES_MAX
from buoy.core.log import codec
from buoy.core.log import events as e
from buoy.core.log.document import Document
from buoy.core.log.questions import check_answer
from buoy.core.log.state import State, fold
from buoy.core.remedy.rewind import RewindPlan
from buoy.core.times import StoreTime
from buoy.engine.absence import absent_run
from buoy.engine.authoring.calls import check_workflow
from buoy.engine.authoring.definitions import Registry, Workflow
from buoy.engine.client import rewind
from buoy.engine.client.migrate import Migration, migrate
from buoy.engine.client.questions import find_question
from buoy.engine.client.requests import Requested, cancel_waits_for, check_pause, direct_request, waits_for_whom
from buoy.engine.client.run import LOOK_AGAIN_S, Run
from buoy.engine.client.starts import check_same, create
from buoy.engine.process.runner import Runner
from buoy.engine.read_log import inbox_pages, read_log
from buoy.engine.run.mailbox import AnswerMessage, Reason, Signal
from buoy.engine.services.commits import send_surely
from buoy.engine.spec.workflow import SpecWorkflow
from buoy.errors import BadInput, NotWritten, QuestionAnswered, Unavailable, Unclear, WrongState
from buoy.ports.host import Clock, Ids, Liveness
from buoy.ports.records import Message, Receipt, RunPage, RunQuery, RunRecord
from buoy.ports.store import Store

Placement = Literal["local", "batch"]
P = ParamSpec("P")
T = TypeVar("T")


class Client:
    """A store, seen as runs. With a runner, what it starts is driven in this process."""

    def __init__(
        self,
        store: Store,
        registry: Registry,
        *,
        clock: Clock,
        ids: Ids,
        liveness: Liveness,
        runner: Runner | None = None,
        actor: str = "client",
        stack: str | None = None,
        env: str | None = None,
    ) -> None:
        self.store = store
        self.registry = registry
        self.clock = clock
        self.ids = ids
        self.liveness = liveness
        self.runner = runner
        self.actor = actor
        # Of the runs that are started here.
        self.stack = stack
        self.env = env

    # ---- starting

    async def start(self, workflow: Workflow[P, T], *args: P.args, **kwargs: P.kwargs) -> Run[T]:
        """A new run, durable when this returns. Raises `Unclear` if that cannot be known: `key` is the run's id."""
        check_workflow(workflow, "start")
        stored = workflow.arguments.encode(args, kwargs)
        return await self.start_stored(self.ids.new(_prefix(workflow.name)), workflow, stored)

    async def start_as(self, run_id: str, workflow: Workflow[P, T], *args: P.args, **kwargs: P.kwargs) -> Run[T]:
        """A run with an id of your own. If it exists already with the same input, that run is given back."""
        check_workflow(workflow, "start_as")
        return await self.start_stored(run_id, workflow, workflow.arguments.encode(args, kwargs))

    async def start_stored(
        self, run_id: str, workflow: Workflow[P, T], stored: msgspec.Raw, *, placement: Placement = "local"
    ) -> Run[T]:
        """As `start_as`, with the input as JSON by parameter name. `placement`: who executes the commands of a spec."""
        checked = check_run_id(run_id)
        workflow.arguments.decode(stored)
        stored = workflow.arguments.completed(stored)
        if isinstance(workflow, SpecWorkflow):
            await self.store.define(workflow.version, workflow.stored)
        if self.runner is None:
            self.registry.add(workflow)
        else:
            await self.runner.learn(workflow)
        created = e.WorkflowCreated(
            workflow=workflow.name,
            input=stored,
            version=workflow.version,
            policy=workflow.recovery,
            queue=workflow.queue,
            stack=self.stack,
            env=self.env,
            by=self.actor,
            placement=placement,
        )
        if self.runner is not None and not self.runner.full and self.runner.specs.able(workflow):
            made = await self.runner.create(workflow, checked, created)
        else:
            made = await create(self, checked, created)
        if not made:
            await check_same(self, checked, created, workflow.arguments)
        return Run(self, checked)

    # ---- looking

    async def record(self, run_id: str) -> RunRecord:
        found = await self.store.run(check_run_id(run_id))
        if found is None:
            raise await absent_run(self.store, RunId(run_id))
        return found

    async def get(self, run_id: str) -> Run[Any]:
        """A run that exists."""
        return Run(self, (await self.record(run_id)).document.run_id)

    async def state(self, run_id: str) -> State:
        """The folded log of a run."""
        record = await self.record(run_id)
        checked = record.document.run_id
        return fold(checked, await read_log(self.store, checked))

    async def runs(self, query: RunQuery | None = None, cursor: str | None = None, limit: int = 100) -> RunPage:
        return await self.store.find_runs(query or RunQuery(), cursor, limit)

    async def follow(self, run_id: str, after: int = 0) -> AsyncIterator[e.Event]:
        """The events of a run, those to come too, until it ends."""
        checked = (await self.record(run_id)).document.run_id
        while True:
            record = await self.record(checked)
            for event in await read_log(self.store, checked, after):
                after = event.seq
                yield event
            if record.document.ended and after >= record.document.head_seq:
                return
            await self.store.wait_for_change(LOOK_AGAIN_S)

    # ---- speaking to runs

    async def answer(self, run_id: str, answer: object, question_id: str | None = None) -> Receipt:
        """Answers an open question. A wrong answer is refused here, and the question stays open."""
        doc, leaf = await find_question(self, run_id, question_id)
        assert leaf.question is not None
        assert leaf.question_id is not None
        try:
            value = check_answer(leaf.question, answer)
        except BadInput:
            if leaf.question_id in await self.answered(doc.run_id):
                raise QuestionAnswered(f"question {leaf.question_id} was answered already") from None
            raise
        body = AnswerMessage(leaf.question_id, codec.encode(value, "the answer", MESSAGE_BYTES_MAX))
        receipt = await self._send(doc, "answer", f"answer:{leaf.question_id}", body)
        if receipt.duplicate:
            raise QuestionAnswered(f"question {leaf.question_id} was answered already (message {receipt.number})")
        return receipt

    async def answered(self, run_id: str) -> frozenset[str]:
        """The questions that have an answer, also those whose answers the run has not seen yet."""
        prefix = "answer:"
        found: set[str] = set()
        async for page in inbox_pages(self.store, check_run_id(run_id)):
            sent = [each.dedupe for each in page if each.kind == "answer" and each.dedupe.startswith(prefix)]
            found.update(each.removeprefix(prefix) for each in sent)
        return frozenset(found)

    async def signal(self, run_id: str, name: str, payload: object = None, dedupe: str | None = None) -> Receipt:
        """Sends a signal. With a dedupe id of your own, sending it again has no further effect."""
        doc = (await self.record(run_id)).document
        check_name(name, "signal")
        body = Signal(name, codec.encode(payload, "the payload", MESSAGE_BYTES_MAX))
        key = self.ids.nonce() if dedupe is None else check_dedupe(dedupe)
        if doc.ended and dedupe is not None:
            # The signal may be what ended the run: its sender must not get "nothing was sent".
            async for page in inbox_pages(self.store, doc.run_id):
                if (twin := next((each for each in page if each.dedupe == f"signal:{key}"), None)) is not None:
                    return Receipt(twin.number, duplicate=True)
        try:
            return await self._send(doc, "signal", f"signal:{key}", body)
        except NotWritten:
            raise
        except Unavailable as error:
            text = (
                f"it is not known whether run {doc.run_id} has the signal ({error}); send it again with dedupe id {key}"
            )
            raise Unclear(text, key=key) from error

    async def pause(self, run_id: str, reason: str | None = None, *, dedupe: str | None = None) -> Requested:
        """No new step starts; those under way end and are recorded. The same dedupe id again has no further effect."""
        return await self._request(run_id, "pause", Reason(reason), dedupe)

    async def resume(self, run_id: str, *, version: str | None = None) -> Requested:
        """Continues a paused run. With `version`: only to find out whether that version of its code fits."""
        return await self._request(run_id, "resume", Reason(version=version))

    async def cancel(self, run_id: str, reason: str | None = None, *, dedupe: str | None = None) -> Requested:
        """The workflow's code sees a cancellation, cleans up, and the run ends as cancelled."""
        return await self._request(run_id, "cancel", Reason(reason), dedupe)

    async def plan_retry(
        self, run_id: str, step: str | None = None, *, keep_answers: bool = False, spec: SpecWorkflow | None = None
    ) -> RewindPlan:
        """What `retry` would do: what runs again, and what is kept."""
        checked = (await self.record(run_id)).document.run_id
        return await rewind.plan(self, checked, step, keep_answers=keep_answers, spec=spec)

    async def retry(
        self,
        run_id: str,
        step: str | None = None,
        *,
        keep_answers: bool = False,
        spec: SpecWorkflow | None = None,
        dedupe: str | None = None,
    ) -> RewindPlan:
        """Goes back to a step (default: the last one that failed) and runs it again, with all that depends on it.

        Results that do not depend on it are kept. Nothing is removed: the run continues on a new branch of its log. A
        run of a spec keeps its definition, or takes `spec` if that fits what is kept. Repeating the call with your own
        dedupe id has no further effect.
        """
        checked = (await self.record(run_id)).document.run_id
        return await rewind.rewind_run(
            self, checked, step, cause="retry", keep_answers=keep_answers, spec=spec, dedupe=dedupe
        )

    async def migrate(
        self,
        run_id: str,
        renamed: Mapping[str, str],
        *,
        version: str | None = None,
        spec: SpecWorkflow | None = None,
        dry_run: bool = False,
        dedupe: str | None = None,
    ) -> Migration:
        """Binds a run to code (or a spec) in which steps have other names. Refused while a runner drives the run."""
        checked = (await self.record(run_id)).document.run_id
        return await migrate(self, checked, renamed, version=version, spec=spec, dry_run=dry_run, dedupe=dedupe)

    async def jump(
        self, run_id: str, step: str, *, keep_answers: bool = False, dedupe: str | None = None
    ) -> RewindPlan:
        """Goes back to any step of the current branch. With a dedupe id, asking again has no further effect."""
        checked = (await self.record(run_id)).document.run_id
        return await rewind.rewind_run(self, checked, step, cause="jump", keep_answers=keep_answers, dedupe=dedupe)

    async def _request(self, run_id: str, kind: str, body: Reason, dedupe: str | None = None) -> Requested:
        record = await self.record(run_id)
        _check_request(record.document, kind)
        await check_pause(self, record.document, kind)
        done = await direct_request(self, record, kind, body)
        if done is not None:
            return done
        await self.request(run_id, kind, body, dedupe)
        waits = cancel_waits_for if kind == "cancel" else waits_for_whom
        return Requested(done=False, text=f"requested; {await waits(self, record)}")

    async def request(self, run_id: str, kind: str, body: Reason, dedupe: str | None = None) -> Receipt:
        """Sends a request to pause, resume or cancel through the inbox, for the run's owner to consume."""
        document = (await self.record(run_id)).document
        key = self.ids.nonce() if dedupe is None else check_dedupe(dedupe)
        return await self._send(document, kind, f"{kind}:{key}", body)

    async def _send(self, doc: Document, kind: str, dedupe: str, body: msgspec.Struct) -> Receipt:
        _refuse_moved(doc)
        if doc.ended:
            raise WrongState(f"run {doc.run_id} is {doc.status} already; nothing was sent")
        message = Message(
            run_id=doc.run_id,
            kind=kind,
            dedupe=dedupe,
            body=codec.encode(body, f"the {kind}", MESSAGE_BYTES_MAX),
            sent_at=StoreTime(self.clock.now()),
            by=self.actor,
        )
        return await send_surely(self.store, message)


@lru_cache(maxsize=256)
def _prefix(workflow: str) -> str:
    """What the ids of a workflow's runs begin with."""
    return (re.sub(r"[^a-z0-9_-]", "-", workflow.lower())[:40].lstrip("-_") or "run") + "-"


def _refuse_moved(doc: Document) -> None:
    if doc.moved_to is not None:
        raise WrongState(f"run {doc.run_id} has moved to {doc.moved_to}; nothing was changed here, speak to it there")


def _check_request(doc: Document, kind: str) -> None:
    _refuse_moved(doc)
    if doc.ended:
        raise WrongState(f"run {doc.run_id} is {doc.status} already; it cannot be asked to {kind}")
