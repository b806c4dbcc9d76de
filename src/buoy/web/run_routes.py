"""Run routes: the calls of the API about runs.

Invariant: a handler asks one operation and returns its struct: no logic that the command line does not have.
"""

from __future__ import annotations

from typing import Any

import msgspec

from buoy.core.explain.explain import Explanation
from buoy.core.explain.phrases import Wording
from buoy.core.graph.view import GraphView
from buoy.core.limits import EVENTS_PAGE
from buoy.errors import BadInput, RecoveryFailed, UnknownQuestion, UnknownRun, UnknownWorkflow
from buoy.operations.control import messages, recover, resume, rewind, start, start_named
from buoy.operations.inspect import explanation, finding_runs, inbox, published, recoveries, run_detail, run_log, runs
from buoy.operations.maintenance import status
from buoy.web.endpoint import CHANGE_ERRORS, RUN_ERRORS, STORE_ERRORS, Asked, Endpoint, Nothing, PageQuery


class RunsChoice(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Which runs. `status` may name several, with commas. `text`: part of the run's id.

    `stack`: runs of that stack, and runs without a stack. `env`: empty for the default one.
    """

    status: str | None = None
    workflow: str | None = None
    parent: str | None = None
    text: str | None = None
    newer_than_s: float | None = None
    older_than_s: float | None = None
    stack: str | None = None
    env: str | None = None


class RunsQuery(RunsChoice, frozen=True, forbid_unknown_fields=True):
    """Which runs. `status` may name several, with commas. `text`: part of the run's id.

    `stack`: runs of that stack, and runs without a stack. `env`: empty for the default one. `finding`: only runs with a
    finding of that code. `cursor`: of the page before.
    """

    finding: str | None = None
    cursor: str | None = None
    limit: int = 50


class EventsQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Events after a number."""

    after: int = 0
    limit: int = EVENTS_PAGE


class PublishedQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Values of events after a number, on that channel or on all."""

    channel: str | None = None
    after: int = 0


class InboxQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Messages after a number."""

    after: int = 0
    limit: int = 100


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
    """A signal. The same `dedupe` again has no further effect."""

    name: str
    payload: Any = None
    dedupe: str | None = None


class ReasonBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Why, for the record."""

    reason: str | None = None


class RewindBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Back to which step. `dry_run`: only tell what would run again. The same `dedupe` again has no further effect."""

    step: str | None = None
    keep_answers: bool = False
    dry_run: bool = False
    dedupe: str | None = None


class JumpBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """As `RewindBody`, to a step that must be named."""

    step: str
    keep_answers: bool = False
    dry_run: bool = False
    dedupe: str | None = None


class RecoverBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`plan`: the id that a dry run gave; then only that plan is applied."""

    dry_run: bool = False
    plan: str | None = None


async def _runs(asked: Asked) -> runs.RunList:
    query: RunsQuery = asked.query
    found = await finding_runs.runs_with_finding(
        asked.client, filter_of(query), query.finding, cursor=query.cursor, limit=query.limit
    )
    return found.listed()


def filter_of(query: RunsChoice) -> runs.RunFilter:
    return runs.RunFilter(
        statuses=tuple(each for each in (query.status or "").split(",") if each),
        workflow=query.workflow,
        parent=query.parent,
        text=query.text,
        newer_than_s=query.newer_than_s,
        older_than_s=query.older_than_s,
        stack=query.stack,
        env=msgspec.UNSET if query.env is None else (query.env or None),
    )


async def _start(asked: Asked) -> start.Started:
    return await start_named.start_named(asked.client, asked.body)


async def _counts(asked: Asked) -> dict[str, int]:
    return await status.run_counts(asked.client)


async def _questions(asked: Asked) -> inbox.OpenQuestions:
    return await inbox.open_questions(asked.client, asked.query.cursor, asked.query.limit)


async def _recoveries(asked: Asked) -> recoveries.RecoveryAudit:
    return await recoveries.recovery_audit(asked.client, asked.query.cursor, asked.query.limit)


async def _run_recoveries(asked: Asked) -> recoveries.RecoveryAudit:
    return await recoveries.run_recoveries(asked.client, asked.run)


async def _inbox(asked: Asked) -> inbox.InboxPage:
    return await inbox.inbox_page(asked.client, asked.run, asked.query.after, asked.query.limit)


async def _graph(asked: Asked) -> GraphView:
    return await run_log.run_graph(asked.client, asked.run)


async def _run(asked: Asked) -> run_detail.RunDetail:
    return (await run_detail.inspect_run(asked.client, asked.run)).detail


async def _why(asked: Asked) -> Explanation:
    return await explanation.explain_run(asked.client, asked.run, Wording())


async def _events(asked: Asked) -> run_log.LogPage:
    return await run_log.log_page(asked.client, asked.run, asked.query.after, asked.query.limit)


async def _published(asked: Asked) -> published.PublishedPage:
    return await published.published_page(asked.client, asked.run, asked.query.channel, asked.query.after)


async def _answer(asked: Asked) -> messages.Sent:
    return await messages.answer(asked.client, asked.run, asked.body.answer, asked.body.question)


async def _signal(asked: Asked) -> messages.Sent:
    body: SignalBody = asked.body
    return await messages.signal(asked.client, asked.run, body.name, body.payload, body.dedupe)


async def _pause(asked: Asked) -> messages.RequestMade:
    return await messages.pause(asked.client, asked.run, asked.body.reason)


async def _cancel(asked: Asked) -> messages.RequestMade:
    return await messages.cancel(asked.client, asked.run, asked.body.reason)


async def _resume(asked: Asked) -> resume.ResumedRun:
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
    body: JumpBody = asked.body
    order = rewind.Rewind(asked.run, body.step, "jump", body.keep_answers, dedupe=body.dedupe)
    return await (rewind.plan_rewind if body.dry_run else rewind.rewind)(asked.client, order)


RUN_ENDPOINTS: tuple[Endpoint, ...] = (
    Endpoint("GET", "/runs", "read", "List runs, newest first, by pages.", runs.RunList, _runs, RunsQuery,
             errors=(BadInput, UnknownRun, *STORE_ERRORS)),
    Endpoint("POST", "/runs", "operate", "Start a run by the name of its workflow, once per id or key.", start.Started,
             _start, body=start_named.StartOrder, errors=(*CHANGE_ERRORS, UnknownWorkflow)),
    Endpoint("GET", "/counts", "read", "Count runs by status.", dict[str, int], _counts, errors=STORE_ERRORS),
    Endpoint("GET", "/questions", "read", "List the open questions of all runs.", inbox.OpenQuestions, _questions,
             PageQuery, errors=(BadInput, *STORE_ERRORS)),
    Endpoint("GET", "/recoveries", "read", "Read the audit of recoveries.", recoveries.RecoveryAudit, _recoveries,
             PageQuery, errors=(BadInput, *STORE_ERRORS)),
    Endpoint("GET", "/runs/{run_id}", "read", "Show a run: document, health, steps, branches.", run_detail.RunDetail,
             _run, errors=RUN_ERRORS),
    Endpoint("GET", "/runs/{run_id}/why", "read", "Explain what a run does or waits for, and what helps.", Explanation,
             _why, errors=RUN_ERRORS),
    Endpoint("GET", "/runs/{run_id}/events", "read", "Read a page of the log of a run.", LogForm, _events,
             EventsQuery, errors=RUN_ERRORS),
    Endpoint("GET", "/runs/{run_id}/published", "read", "Read what the steps of a run published.",
             published.PublishedPage, _published, PublishedQuery, errors=RUN_ERRORS),
    Endpoint("GET", "/runs/{run_id}/inbox", "read", "Read the messages of a run.", inbox.InboxPage, _inbox,
             InboxQuery, errors=RUN_ERRORS),
    Endpoint("GET", "/runs/{run_id}/graph", "read", "Show a run as a graph.", GraphView, _graph, errors=RUN_ERRORS),
    Endpoint("GET", "/runs/{run_id}/recoveries", "read", "Read how a run was brought back.", recoveries.RecoveryAudit,
             _run_recoveries, errors=RUN_ERRORS),
    Endpoint("POST", "/runs/{run_id}/answer", "operate", "Answer an open question.", messages.Sent, _answer,
             body=AnswerBody, errors=(*CHANGE_ERRORS, UnknownQuestion)),
    Endpoint("POST", "/runs/{run_id}/signal", "operate", "Send a signal.", messages.Sent, _signal, body=SignalBody,
             errors=CHANGE_ERRORS),
    Endpoint("POST", "/runs/{run_id}/pause", "operate", "Pause a run.", messages.RequestMade, _pause, body=ReasonBody,
             errors=CHANGE_ERRORS),
    Endpoint("POST", "/runs/{run_id}/resume", "operate", "Recover a run if needed, then continue it.",
             resume.ResumedRun, _resume, body=Nothing, errors=(*CHANGE_ERRORS, RecoveryFailed)),
    Endpoint("POST", "/runs/{run_id}/cancel", "operate", "Cancel a run.", messages.RequestMade, _cancel,
             body=ReasonBody, errors=CHANGE_ERRORS),
    Endpoint("POST", "/runs/{run_id}/retry", "operate", "Go back to a failed step.", rewind.RewindDone, _retry,
             body=RewindBody, errors=CHANGE_ERRORS),
    Endpoint("POST", "/runs/{run_id}/jump", "operate", "Go back to any step.", rewind.RewindDone, _jump,
             body=JumpBody, errors=CHANGE_ERRORS),
    Endpoint("POST", "/runs/{run_id}/recover", "operate", "Diagnose a run, and apply the plan.", recover.RecoveryView,
             _recover, body=RecoverBody, errors=CHANGE_ERRORS),
    Endpoint("POST", "/runs/{run_id}/release", "operate", "Release a run from quarantine.", resume.ReleasedRun,
             _release, body=Nothing, errors=CHANGE_ERRORS),
)  # fmt: skip
