"""Routes: the HTTP API as a table. The same table serves the requests and makes the OpenAPI document.

Invariants: a handler asks one operation and returns its struct: no logic that the command line does not have. Query and
body are structs; what does not fit them is refused with the place.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

import msgspec

from buoy.core.explain.explain import Explanation
from buoy.core.explain.phrases import Wording
from buoy.core.ids import RunId
from buoy.core.limits import EVENTS_PAGE, RUNS_PAGE_MAX
from buoy.engine.client.client import Client
from buoy.errors import (
    BadInput,
    CorruptLog,
    Problem,
    StoreUnusable,
    TooLarge,
    Unavailable,
    UnknownQuestion,
    UnknownRun,
    WrongState,
)
from buoy.operations import messages, recover, resume, rewind, schedules, status
from buoy.operations.inspect import explanation, run_detail, run_log, runs, troubles
from buoy.web.auth import Scope


class Nothing(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """No parameters."""


class RunsQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Which runs. `status` may name several, with commas."""

    status: str | None = None
    workflow: str | None = None
    parent: str | None = None
    text: str | None = None
    newer_than_s: float | None = None
    older_than_s: float | None = None
    cursor: str | None = None
    limit: int = 50


class EventsQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Events after a number."""

    after: int = 0
    limit: int = EVENTS_PAGE


class EventForm(msgspec.Struct, frozen=True):
    """An event as the OpenAPI document describes it; the fields of `body` depend on its type."""

    seq: int
    at: float
    body: dict[str, Any]
    branch: int = 0
    nonce: str | None = None


class LogForm(msgspec.Struct, frozen=True):
    """`LogPage` as the OpenAPI document describes it."""

    run_id: str
    events: list[EventForm]
    missing: list[tuple[int, int]]


class AnswerBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An answer as plain JSON. `question`: which one, if several are open."""

    answer: Any
    question: str | None = None


class SignalBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A signal. The same `dedupe` again does nothing more."""

    name: str
    payload: Any = None
    dedupe: str | None = None


class ReasonBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Why, for the record."""

    reason: str | None = None


class RewindBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Back to which step. `dry_run`: only tell what would run again. The same `dedupe` again does nothing more."""

    step: str | None = None
    keep_answers: bool = False
    dry_run: bool = False
    dedupe: str | None = None


class RecoverBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`plan`: the id that a dry run gave; then only that plan is applied."""

    dry_run: bool = False
    plan: str | None = None


class Asked(NamedTuple):
    """One request, parsed."""

    client: Client
    run_id: RunId | None
    query: Any
    body: Any

    @property
    def run(self) -> RunId:
        assert self.run_id is not None, "the path has a run"
        return self.run_id


Answer = Callable[[Asked], Awaitable[Any]]


class Endpoint(NamedTuple):
    """One call of the API."""

    method: str
    path: str
    scope: Scope
    summary: str
    result: Any
    answer: Answer
    query: type[msgspec.Struct] = Nothing
    body: type[msgspec.Struct] | None = None
    errors: tuple[type[Problem], ...] = ()


_RUN = (UnknownRun, BadInput, CorruptLog, Unavailable, StoreUnusable)
_CHANGE = (*_RUN, WrongState, TooLarge)


async def _runs(asked: Asked) -> runs.RunList:
    query: RunsQuery = asked.query
    if not 1 <= query.limit <= RUNS_PAGE_MAX:
        raise BadInput(f"limit must be from 1 to {RUNS_PAGE_MAX}: {query.limit}")
    chosen = runs.RunFilter(
        statuses=tuple(each for each in (query.status or "").split(",") if each),
        workflow=query.workflow,
        parent=query.parent,
        text=query.text,
        newer_than_s=query.newer_than_s,
        older_than_s=query.older_than_s,
    )
    return (await runs.list_runs(asked.client, chosen, cursor=query.cursor, limit=query.limit)).listed()


async def _counts(asked: Asked) -> dict[str, int]:
    return await status.run_counts(asked.client)


async def _run(asked: Asked) -> run_detail.RunDetail:
    return (await run_detail.inspect_run(asked.client, asked.run)).detail


async def _why(asked: Asked) -> Explanation:
    return await explanation.explain_run(asked.client, asked.run, Wording())


async def _events(asked: Asked) -> run_log.LogPage:
    query: EventsQuery = asked.query
    if query.after < 0 or not 1 <= query.limit <= EVENTS_PAGE:
        raise BadInput(f"after must be 0 or more, and limit from 1 to {EVENTS_PAGE}")
    return await run_log.log_page(asked.client, asked.run, query.after, query.limit)


async def _answer(asked: Asked) -> messages.Sent:
    return await messages.answer(asked.client, asked.run, asked.body.answer, asked.body.question)


async def _signal(asked: Asked) -> messages.Sent:
    body: SignalBody = asked.body
    return await messages.signal(asked.client, asked.run, body.name, body.payload, body.dedupe)


async def _pause(asked: Asked) -> messages.RequestMade:
    return await messages.pause(asked.client, asked.run, asked.body.reason)


async def _cancel(asked: Asked) -> messages.RequestMade:
    return await messages.cancel(asked.client, asked.run, asked.body.reason)


async def _resume(asked: Asked) -> resume.Resumed:
    return await resume.resume_run(asked.client, asked.run, Wording())


async def _release(asked: Asked) -> resume.ReleasedRun:
    return await resume.release_run(asked.client, asked.run, Wording())


async def _recover(asked: Asked) -> recover.RecoveryView:
    body: RecoverBody = asked.body
    done = await recover.recover(asked.client, asked.run, dry_run=body.dry_run, shown=body.plan)
    return done.view()


async def _retry(asked: Asked) -> rewind.RewindDone:
    body: RewindBody = asked.body
    order = rewind.Rewind(asked.run, body.step, "retry", body.keep_answers, dedupe=body.dedupe)
    return await (rewind.plan_rewind if body.dry_run else rewind.rewind)(asked.client, order)


async def _jump(asked: Asked) -> rewind.RewindDone:
    body: RewindBody = asked.body
    if body.step is None:
        raise BadInput('a jump needs a step; send {"step": "..."}')
    order = rewind.Rewind(asked.run, body.step, "jump", body.keep_answers, dedupe=body.dedupe)
    return await (rewind.plan_rewind if body.dry_run else rewind.rewind)(asked.client, order)


async def _status(asked: Asked) -> status.StatusReport:
    return await status.store_status(asked.client)


async def _troubles(asked: Asked) -> troubles.Troubles:
    return await troubles.all_troubles(asked.client)


async def _schedules(asked: Asked) -> schedules.ScheduleList:
    return (await schedules.list_schedules(asked.client)).listed()


API = "/api/v1"
ENDPOINTS: tuple[Endpoint, ...] = (
    Endpoint("GET", "/runs", "read", "List runs, newest first, by pages.", runs.RunList, _runs, RunsQuery,
             errors=(BadInput, UnknownRun, Unavailable, StoreUnusable)),
    Endpoint("GET", "/counts", "read", "Count runs by status.", dict[str, int], _counts,
             errors=(Unavailable, StoreUnusable)),
    Endpoint("GET", "/runs/{run_id}", "read", "Show a run: document, health, steps, branches.", run_detail.RunDetail,
             _run, errors=_RUN),
    Endpoint("GET", "/runs/{run_id}/why", "read", "Explain what a run does or waits for, and what helps.", Explanation,
             _why, errors=_RUN),
    Endpoint("GET", "/runs/{run_id}/events", "read", "Read a page of the log of a run.", LogForm, _events,
             EventsQuery, errors=_RUN),
    Endpoint("POST", "/runs/{run_id}/answer", "operate", "Answer an open question.", messages.Sent, _answer,
             body=AnswerBody, errors=(*_CHANGE, UnknownQuestion)),
    Endpoint("POST", "/runs/{run_id}/signal", "operate", "Send a signal.", messages.Sent, _signal, body=SignalBody,
             errors=_CHANGE),
    Endpoint("POST", "/runs/{run_id}/pause", "operate", "Pause a run.", messages.RequestMade, _pause, body=ReasonBody,
             errors=_CHANGE),
    Endpoint("POST", "/runs/{run_id}/resume", "operate", "Recover a run if needed, then continue it.", resume.Resumed,
             _resume, body=Nothing, errors=_CHANGE),
    Endpoint("POST", "/runs/{run_id}/cancel", "operate", "Cancel a run.", messages.RequestMade, _cancel,
             body=ReasonBody, errors=_CHANGE),
    Endpoint("POST", "/runs/{run_id}/retry", "operate", "Go back to a failed step.", rewind.RewindDone, _retry,
             body=RewindBody, errors=_CHANGE),
    Endpoint("POST", "/runs/{run_id}/jump", "operate", "Go back to any step.", rewind.RewindDone, _jump,
             body=RewindBody, errors=_CHANGE),
    Endpoint("POST", "/runs/{run_id}/recover", "operate", "Diagnose a run, and apply the plan.", recover.RecoveryView,
             _recover, body=RecoverBody, errors=_CHANGE),
    Endpoint("POST", "/runs/{run_id}/release", "operate", "Release a run from quarantine.", resume.ReleasedRun,
             _release, body=Nothing, errors=_CHANGE),
    Endpoint("GET", "/status", "read", "Report runs, runners, sweepers and troubles.", status.StatusReport, _status,
             errors=(Unavailable, StoreUnusable)),
    Endpoint("GET", "/troubles", "read", "List the runs that need care.", troubles.Troubles, _troubles,
             errors=(Unavailable, StoreUnusable)),
    Endpoint("GET", "/schedules", "read", "List schedules.", schedules.ScheduleList, _schedules,
             errors=(Unavailable, StoreUnusable)),
)  # fmt: skip
