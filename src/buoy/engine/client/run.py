"""Run: a handle of one run by its id, to wait for it and to send to it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast

from buoy.core.ids import RunId
from buoy.core.log import codec
from buoy.core.log import events as e
from buoy.core.log.document import Document, OpenLeaf
from buoy.core.log.state import State, fold
from buoy.engine.client.published import PublishedValue, published_groups
from buoy.engine.client.requests import Requested
from buoy.engine.read_log import read_log
from buoy.errors import RunCancelled, RunFailed, WrongState
from buoy.ports.records import Receipt

if TYPE_CHECKING:
    from buoy.engine.client.client import Client

T = TypeVar("T")

# How long a waiter sleeps at most between two looks at a run that another process drives.
LOOK_AGAIN_S = 0.25


class Run(Generic[T]):
    """A run, by its id."""

    def __init__(self, client: Client, run_id: RunId) -> None:
        self.id = run_id
        self._client = client

    @property
    def client(self) -> Client:
        """The client that the run was started or found with."""
        return self._client

    async def document(self) -> Document:
        """What the run is doing now."""
        return (await self._client.record(self.id)).document

    async def question(self) -> OpenLeaf:
        """Waits until the run has an open question without an answer, and returns it."""
        while True:
            doc = await self.document()
            asked = [leaf for leaf in doc.open if leaf.question_id is not None]
            answered = await self._client.answered(self.id) if asked else frozenset()
            for leaf in asked:
                if leaf.question_id not in answered:
                    return leaf
            if doc.ended:
                raise WrongState(f"run {self.id} is {doc.status}; it asks nothing any more")
            await self._client.store.wait_for_change(LOOK_AGAIN_S)

    async def result(self) -> T:
        """Waits for the end and gives the result; raises `RunFailed` or `RunCancelled`. Bound it by asyncio.timeout."""
        while True:
            runner = self._client.runner
            waiter = None if runner is None else runner.wait_end(self.id)
            if waiter is not None:
                execution = await waiter
                if execution is None or execution.ending is None:
                    continue  # the run left this process: read its end from the store
                return await self._outcome(execution.state, execution.ending)
            record = await self._client.record(self.id)
            if record.document.ended:
                kept = None if runner is None else runner.waiters.kept(self.id, record.document.head_seq)
                return await (self._stored_outcome() if kept is None else self._outcome(*kept))
            await self._client.store.wait_for_change(LOOK_AGAIN_S)

    async def _stored_outcome(self) -> T:
        log = await read_log(self._client.store, self.id)
        state = fold(self.id, log)
        ending = log[state.ending_seq - 1].body
        if isinstance(ending, e.Moved):
            raise WrongState(f"run {self.id} has moved to {ending.to}; ask for its result there")
        assert isinstance(ending, e.WorkflowCompleted | e.WorkflowFailed | e.WorkflowCancelled)
        return await self._outcome(state, ending)

    async def _outcome(self, state: State, ending: e.Ending) -> T:
        match ending:
            case e.WorkflowCompleted():
                if ending.continued_as is not None:
                    return await self._successor(ending.continued_as)
                workflow = self._client.registry.get(state.created.workflow) if state.created else None
                returns = Any if workflow is None else workflow.arguments.returns
                return cast(T, codec.decode(ending.result, returns, f"the result of run {self.id}"))
            case e.WorkflowCancelled():
                why = f": {state.error.message}" if state.error else ""
                raise RunCancelled(f"run {self.id} was cancelled{why}", run_id=self.id)
            case _:
                error = state.error or e.ErrorInfo(type="unknown", message="no reason was recorded")
                raise RunFailed(f"run {self.id} failed: {error}", run_id=self.id, type=error.type)

    async def _successor(self, run_id: RunId) -> T:
        """The run continued as a new one: its result is the result."""
        while await self._client.store.run(run_id) is None:
            await self._client.store.wait_for_change(LOOK_AGAIN_S)
        successor: Run[T] = Run(self._client, run_id)
        return await successor.result()

    async def published(
        self, channel: str | None = None, *, after: int = 0, follow: bool = True
    ) -> AsyncIterator[PublishedValue]:
        """What the steps of the run publish, in order: on that channel, or on all. Ends with the run.

        `after`: only values of later events than this number. `follow=False`: only what is there now.
        """
        async for group in published_groups(self._client, self.id, after=after, follow=follow):
            for value in group.values:
                if channel is None or value.channel == channel:
                    yield value

    async def answer(self, answer: object, question_id: str | None = None) -> Receipt:
        return await self._client.answer(self.id, answer, question_id)

    async def signal(self, name: str, payload: object = None, dedupe: str | None = None) -> Receipt:
        return await self._client.signal(self.id, name, payload, dedupe)

    async def pause(self, reason: str | None = None) -> Requested:
        return await self._client.pause(self.id, reason)

    async def resume(self) -> Requested:
        return await self._client.resume(self.id)

    async def cancel(self, reason: str | None = None) -> Requested:
        return await self._client.cancel(self.id, reason)
