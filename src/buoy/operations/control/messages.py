"""Messages: answers, signals and requests to a run.

Invariant: what is refused changed nothing; what is accepted is durable, and the text says whether it has happened
already or who will handle it.
"""

from __future__ import annotations

import msgspec

from buoy.core.explain.phrases import listed
from buoy.core.log.document import OpenLeaf
from buoy.engine.client.client import Client
from buoy.engine.client.questions import find_question
from buoy.engine.client.requests import Requested, waits_for_whom
from buoy.engine.read_log import inbox_pages
from buoy.engine.run.mailbox import AnswerMessage
from buoy.ports.records import Receipt


class Sent(msgspec.Struct, frozen=True, omit_defaults=True):
    """A message that the run's inbox has. `duplicate`: it had it before. `hint`: why the run may not read it soon."""

    run_id: str
    message: int
    duplicate: bool
    text: str
    hint: str | None = None


class RequestMade(msgspec.Struct, frozen=True):
    """A request to a run. `done`: it has happened; else it is stored, and `text` says who will handle it."""

    run_id: str
    done: bool
    text: str


async def open_question(client: Client, run_id: str, question_id: str | None = None) -> OpenLeaf:
    """The question that an answer would answer; `question_id` may be left out if only one is open."""
    return (await find_question(client, run_id, question_id))[1]


async def answer(client: Client, run_id: str, value: object, question_id: str | None = None) -> Sent:
    """Answers an open question."""
    record = await client.record(run_id)
    receipt = await client.answer(run_id, value, question_id)
    return _sent(run_id, receipt, f"answered; {await waits_for_whom(client, record)}")


async def signal(client: Client, run_id: str, name: str, payload: object = None, dedupe: str | None = None) -> Sent:
    """Sends a signal, and says so if the run does not wait for that name."""
    doc = (await client.record(run_id)).document
    # Read before the signal is sent: afterwards the run may have consumed it.
    waits = tuple(dict.fromkeys(leaf.name for leaf in doc.open if leaf.kind == "signal"))
    receipt = await client.signal(run_id, name, payload, dedupe)
    if receipt.duplicate:
        return _sent(run_id, receipt, "was sent before; nothing was done")
    text = await waits_for_whom(client, run_id)
    return _sent(run_id, receipt, f"sent; {text}", None if name in waits else _not_waited_for(run_id, name, waits))


def _not_waited_for(run_id: str, name: str, waits: tuple[str, ...]) -> str:
    """A note about the name: a typo would wait forever, but the workflow may also reach that name later."""
    others = f"it waits for {listed([repr(each) for each in waits])}" if waits else "it waits for no signal"
    return f"note: run {run_id} does not wait for {name!r} now: {others}; {name!r} is kept until it does"


def _sent(run_id: str, receipt: Receipt, text: str, hint: str | None = None) -> Sent:
    return Sent(run_id, receipt.number, receipt.duplicate, text, hint)


async def pause(client: Client, run_id: str, reason: str | None = None) -> RequestMade:
    """No new step starts; those under way end and are recorded."""
    return _made(run_id, await client.pause(run_id, reason))


async def cancel(client: Client, run_id: str, reason: str | None = None) -> RequestMade:
    """The workflow's code sees a cancellation, cleans up, and the run ends as cancelled."""
    return _made(run_id, await client.cancel(run_id, reason))


def _made(run_id: str, found: Requested) -> RequestMade:
    return RequestMade(run_id, found.done, found.text)


async def answer_sent(client: Client, run_id: str, question_id: str | None) -> msgspec.Raw | None:
    """The answer to that question in the run's inbox: it is durable there before the run sees it."""
    async for page in inbox_pages(client.store, (await client.record(run_id)).document.run_id):
        for message in page:
            found = msgspec.json.decode(message.body, type=AnswerMessage) if message.kind == "answer" else None
            if found is not None and found.question_id == question_id:
                return found.answer
    return None
