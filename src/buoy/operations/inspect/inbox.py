"""Inbox: the messages of one run, and the open questions of all runs.

Invariants: a look changes nothing and marks nothing as read. Ages are by the clock of the store.
"""

from __future__ import annotations

from typing import Any

import msgspec

from buoy.core.limits import INBOX_PAGE, RUNS_PAGE_MAX
from buoy.core.log.document import OpenLeaf
from buoy.core.log.lifecycle import Status
from buoy.core.times import run_time
from buoy.engine.client.client import Client
from buoy.engine.read_log import read_log
from buoy.errors import BadInput
from buoy.ports.records import RunQuery


class InboxMessage(msgspec.Struct, frozen=True):
    """A message of a run. `read_by`: the number of the event that consumed it; None: it is unread."""

    number: int
    kind: str
    sent_at: float
    by: str | None
    body: Any
    read_by: int | None


class InboxPage(msgspec.Struct, frozen=True):
    """Messages in the order of their numbers. `next`: ask for those after this number; None: that was the last page."""

    run_id: str
    messages: tuple[InboxMessage, ...]
    next: int | None


class OpenQuestion(msgspec.Struct, frozen=True):
    """A question that waits for a person, and how long it has waited."""

    run_id: str
    workflow: str
    leaf: OpenLeaf
    age_s: float


class OpenQuestions(msgspec.Struct, frozen=True):
    """A page of open questions, those of the newest runs first."""

    questions: tuple[OpenQuestion, ...]
    cursor: str | None


async def inbox_page(client: Client, run_id: str, after: int = 0, limit: int = 100) -> InboxPage:
    """The messages after that number, with the event that consumed each."""
    if after < 0 or not 1 <= limit <= INBOX_PAGE:
        raise BadInput(f"after must be 0 or more, and limit from 1 to {INBOX_PAGE}")
    record = await client.record(run_id)
    checked = record.document.run_id
    found = await client.store.inbox(checked, after, limit)
    read_by = {
        number: event.seq
        for event in await read_log(client.store, checked)
        if isinstance(number := getattr(event.body, "message", None), int)
    }
    messages = tuple(
        InboxMessage(
            each.number,
            each.kind,
            float(each.sent_at),
            each.by,
            msgspec.json.decode(each.body),
            read_by.get(each.number),
        )
        for each in found
    )
    last = max((each.number for each in found), default=after)
    return InboxPage(checked, messages, last if last < record.inbox_head else None)


async def open_questions(client: Client, cursor: str | None = None, limit: int = 50) -> OpenQuestions:
    """The questions that wait for a person, of all runs."""
    if not 1 <= limit <= RUNS_PAGE_MAX:
        raise BadInput(f"limit must be from 1 to {RUNS_PAGE_MAX}: {limit}")
    page = await client.store.find_runs(RunQuery(statuses=(Status.AWAITING_INPUT,)), cursor, limit)
    now = await client.store.now()
    found: list[OpenQuestion] = []
    for record in page.runs:
        doc = record.document
        # By the clock of the run's last writer, which dated the question.
        run_now = run_time(now, taken_at=record.updated_at, dated_at=doc.updated_at)
        asked = [leaf for leaf in doc.open if leaf.question is not None]
        found += [OpenQuestion(doc.run_id, doc.workflow, leaf, max(0.0, run_now - leaf.since)) for leaf in asked]
    return OpenQuestions(tuple(found), page.cursor)
