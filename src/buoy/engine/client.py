"""Client: starts runs and speaks to them. Everything that it says to a run goes through the run's inbox.

Invariants: `start` returns when the run is durable; an id that exists already gives back that run, never a second one.
A request is checked before it is stored, so that a wrong answer or an impossible request changes nothing.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Mapping
from typing import Any, ParamSpec, TypeVar

import msgspec

from buoy.core import codec
from buoy.core import events as e
from buoy.core.branching import Plan
from buoy.core.document import Document, OpenLeaf, document
from buoy.core.ids import RunId, check_dedupe, check_name, check_run_id
from buoy.core.limits import MESSAGE_BYTES_MAX
from buoy.core.questions import check_answer
from buoy.core.state import State, fold
from buoy.engine import returns
from buoy.engine.absence import absent_run
from buoy.engine.arguments import Arguments, same_call
from buoy.engine.calls import check_workflow
from buoy.engine.definitions import Registry, Workflow
from buoy.engine.loading import read_log
from buoy.engine.messages import Answer, Reason, Signal
from buoy.engine.migration import Migration, migrate
from buoy.engine.requests import Requested, direct_request, waits_for_whom
from buoy.engine.run_handle import LOOK_AGAIN_S, Run
from buoy.engine.runner import Runner
from buoy.engine.spec_workflow import SpecWorkflow
from buoy.errors import BadInput, UnknownQuestion, WrongState
from buoy.ports import (
    Clock,
    Committed,
    Ids,
    Liveness,
    Message,
    Receipt,
    Released,
    RunPage,
    RunQuery,
    RunRecord,
    Store,
    Write,
)

P = ParamSpec("P")
T = TypeVar("T")


class Client:
    """A store, seen as runs. With a runner, what it starts is driven in this very process."""

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
        """A new run, durable when this returns."""
        check_workflow(workflow, "start")
        prefix = re.sub(r"[^a-z0-9_-]", "-", workflow.name.lower())[:40].lstrip("-_") or "run"
        return await self.start_as(self.ids.new(f"{prefix}-"), workflow, *args, **kwargs)

    async def start_as(self, run_id: str, workflow: Workflow[P, T], *args: P.args, **kwargs: P.kwargs) -> Run[T]:
        """A run with an id of your own. If it exists already with the same input, that run is given back."""
        check_workflow(workflow, "start_as")
        return await self.start_stored(run_id, workflow, workflow.arguments.encode(args, kwargs))

    async def start_stored(self, run_id: str, workflow: Workflow[P, T], stored: msgspec.Raw) -> Run[T]:
        """As `start_as`, with the input as JSON by parameter name."""
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
        )
        if self.runner is not None and not self.runner.full and self.runner.specs.able(workflow):
            made = await self.runner.create(workflow, checked, created)
        else:
            made = await self._create(checked, created)
        if not made:
            await self._check_same(checked, created, workflow.arguments)
        return Run(self, checked)

    async def _create(self, run_id: RunId, created: e.WorkflowCreated) -> bool:
        """A run for whichever runner takes it."""
        now = self.clock.now()
        event = e.Event(1, now, created, nonce=self.ids.nonce())
        write = Write(run_id, 0, (event,), document(fold(run_id, [event])), Released(due_at=now, cause="created"))
        outcome = (await self.store.commit([write]))[0]
        if isinstance(outcome, Committed):
            return True
        first = await self.store.events(run_id, limit=1)
        return bool(first) and first[0].nonce == event.nonce

    async def _check_same(self, run_id: RunId, created: e.WorkflowCreated, arguments: Arguments) -> None:
        first = await self.store.events(run_id, limit=1)
        if not first:
            raise await absent_run(self.store, run_id)
        there = first[0].body
        if not isinstance(there, e.WorkflowCreated) or there.workflow != created.workflow:
            other = there.workflow if isinstance(there, e.WorkflowCreated) else "something else"
            raise WrongState(f"run {run_id} exists already, and is a run of {other}; choose another id")
        if not same_call(arguments.completed(there.input), created.input):
            raise WrongState(f"run {run_id} exists already, with another input; choose another id")

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
            await self.store.changed(LOOK_AGAIN_S)

    # ---- speaking to runs

    async def answer(self, run_id: str, answer: object, question_id: str | None = None) -> Receipt:
        """Answers an open question. A wrong answer is refused here, and the question stays open."""
        doc = (await self.record(run_id)).document
        if doc.open_count > len(doc.open):
            # The document's list is cut; the log knows all of them.
            doc = document(await self.state(run_id), open_max=doc.open_count)
        leaf = _question(doc, question_id)
        assert leaf.question is not None
        assert leaf.question_id is not None
        try:
            value = check_answer(leaf.question, answer)
        except BadInput:
            if leaf.question_id in await self.answered(doc.run_id):
                raise WrongState(f"question {leaf.question_id} was answered already") from None
            raise
        body = Answer(leaf.question_id, codec.encode(value, "the answer", MESSAGE_BYTES_MAX))
        receipt = await self._send(doc, "answer", f"answer:{leaf.question_id}", body)
        if receipt.duplicate:
            raise WrongState(f"question {leaf.question_id} was answered already (message {receipt.number})")
        return receipt

    async def answered(self, run_id: str) -> frozenset[str]:
        """The questions that have an answer, also those whose answers the run has not seen yet."""
        prefix = "answer:"
        sent = [each.dedupe for each in await self.store.inbox(check_run_id(run_id)) if each.kind == "answer"]
        return frozenset(each.removeprefix(prefix) for each in sent if each.startswith(prefix))

    async def signal(self, run_id: str, name: str, payload: object = None, dedupe: str | None = None) -> Receipt:
        """Sends a signal. With a dedupe id of your own, sending it again does nothing more."""
        doc = (await self.record(run_id)).document
        check_name(name, "signal")
        body = Signal(name, codec.encode(payload, "the payload", MESSAGE_BYTES_MAX))
        key = f"signal:{check_dedupe(dedupe)}" if dedupe is not None else f"signal:{self.ids.nonce()}"
        return await self._send(doc, "signal", key, body)

    async def pause(self, run_id: str, reason: str | None = None) -> Requested:
        """No new step starts; those under way end and are recorded."""
        return await self._request(run_id, "pause", reason)

    async def resume(self, run_id: str) -> Requested:
        """A paused run goes on."""
        return await self._request(run_id, "resume", None)

    async def cancel(self, run_id: str, reason: str | None = None) -> Requested:
        """The workflow's code sees a cancellation, cleans up, and the run ends as cancelled."""
        return await self._request(run_id, "cancel", reason)

    async def plan_retry(
        self, run_id: str, step: str | None = None, *, keep_answers: bool = False, spec: SpecWorkflow | None = None
    ) -> Plan:
        """What `retry` would do: what runs again, and what is kept."""
        checked = (await self.record(run_id)).document.run_id
        return await returns.plan(self, checked, step, keep_answers=keep_answers, spec=spec)

    async def retry(
        self, run_id: str, step: str | None = None, *, keep_answers: bool = False, spec: SpecWorkflow | None = None
    ) -> Plan:
        """Goes back to a step (default: the last one that failed) and runs it again, with all that depends on it.

        What does not depend on it is kept. Nothing is removed: the run goes on on a new branch of its log. A run of a
        spec goes on with the definition that it has, or with `spec` if that fits what is kept.
        """
        checked = (await self.record(run_id)).document.run_id
        return await returns.go_back(self, checked, step, cause="retry", keep_answers=keep_answers, spec=spec)

    async def migrate(
        self,
        run_id: str,
        renamed: Mapping[str, str],
        *,
        version: str | None = None,
        spec: SpecWorkflow | None = None,
        dry_run: bool = False,
    ) -> Migration:
        """Binds a run to code (or a spec) in which steps have other names. Refused while somebody drives it."""
        checked = (await self.record(run_id)).document.run_id
        return await migrate(self, checked, renamed, version=version, spec=spec, dry_run=dry_run)

    async def jump(self, run_id: str, step: str, *, keep_answers: bool = False) -> Plan:
        """Goes back to any step that ran on the current branch."""
        checked = (await self.record(run_id)).document.run_id
        return await returns.go_back(self, checked, step, cause="jump", keep_answers=keep_answers)

    async def _request(self, run_id: str, kind: str, reason: str | None) -> Requested:
        record = await self.record(run_id)
        _check_request(record.document, kind)
        done = await direct_request(self, record, kind, reason)
        if done is not None:
            return done
        await self.request(run_id, kind, Reason(reason))
        return Requested(done=False, text=await waits_for_whom(self, record))

    async def request(self, run_id: str, kind: str, body: Reason) -> Receipt:
        """Sends a request to pause, resume or cancel through the inbox, for the run's owner to consume."""
        document = (await self.record(run_id)).document
        return await self._send(document, kind, f"{kind}:{self.ids.nonce()}", body)

    async def _send(self, doc: Document, kind: str, dedupe: str, body: msgspec.Struct) -> Receipt:
        if doc.ended:
            raise WrongState(f"run {doc.run_id} is {doc.status} already; nothing was sent")
        message = Message(
            run_id=doc.run_id,
            kind=kind,
            dedupe=dedupe,
            body=codec.encode(body, f"the {kind}", MESSAGE_BYTES_MAX),
            sent_at=self.clock.now(),
            by=self.actor,
        )
        return await self.store.send(message)


def _check_request(doc: Document, kind: str) -> None:
    if doc.ended:
        raise WrongState(f"run {doc.run_id} is {doc.status} already; it cannot be asked to {kind}")
    if kind == "pause" and doc.pause is not None:
        raise WrongState(f"run {doc.run_id} is paused already")
    if kind == "resume" and doc.pause is None:
        raise WrongState(f"run {doc.run_id} is not paused, it is {doc.status}")


def _question(doc: Document, question_id: str | None) -> OpenLeaf:
    asked = [leaf for leaf in doc.open if leaf.question_id is not None]
    if question_id is None and len(asked) == 1:
        return asked[0]
    for leaf in asked:
        if question_id in (leaf.question_id, leaf.leaf):
            return leaf
    known = ", ".join(str(leaf.question_id) for leaf in asked) or "none"
    if question_id is None:
        raise UnknownQuestion(
            f"run {doc.run_id} has no open question; it is {doc.status}"
            if not asked
            else f"run {doc.run_id} has several open questions, say which: {known}"
        )
    raise UnknownQuestion(
        f"run {doc.run_id} has no open question {question_id!r} (answered, given up or never asked); open: {known}"
    )
