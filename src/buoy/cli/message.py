"""`buoy answer`, `signal`, `pause` and `cancel`: say something to a run.

Invariant: what is refused changed nothing; what is accepted is durable, and the output says whether it has happened
already or who will see to it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Coroutine
from typing import Any

import click

from buoy.cli.terminal.answers import parse_answer
from buoy.cli.terminal.inputs import parse_json
from buoy.cli.terminal.output import print_json
from buoy.cli.terminal.program import Exit, connected, go, shared_options
from buoy.cli.terminal.prompts import put
from buoy.cli.terminal.run_ids import run_argument
from buoy.cli.terminal.typed import Typed
from buoy.core.explain.phrases import expected_text, listed, questions
from buoy.core.log.document import Document, OpenLeaf
from buoy.core.log.questions import Json, Question
from buoy.engine.client.client import Client
from buoy.engine.client.requests import Requested, waits_for_whom
from buoy.errors import BadInput
from buoy.ports.records import Receipt


@click.command()
@run_argument
@click.argument("value", metavar="[VALUE]", required=False)
@click.option("--question", metavar="ID", help="Which question, if several are open.")
@click.option("--form", metavar="JSON", help="The answer to a form.")
@shared_options
def answer(
    run_id: str, value: str | None, question: str | None, form: str | None, store: str | None, as_json: bool
) -> int:
    """Answer an open question of a run.

    VALUE is yes or no, an option, several options with commas between them (or a JSON list), a text, or JSON for a
    form. Without it you are asked, on a terminal. A wrong answer is refused, and the question stays open.

    \b
    Example:
      buoy answer order-1 yes

    Exit code: 0 accepted, 2 refused or no such question, 5 store unusable.
    """
    if value is not None and form is not None:
        raise BadInput("give the answer either as VALUE or with --form, not both")
    receipt, text = go(_answer(run_id, form if value is None else value, question, store))
    return _tell_sent(run_id, receipt, f"answered; {text}", as_json=as_json)


async def _answer(run_id: str, typed: str | None, question_id: str | None, store: str | None) -> tuple[Receipt, str]:
    async with connected(store) as client:
        record = await client.record(run_id)
        leaf = _find_question(record.document, question_id)
        if leaf is None or leaf.question is None:
            receipt = await client.answer(run_id, typed, question_id)  # says which questions there are
        else:
            value = await _ask(leaf, leaf.question) if typed is None else parse_answer(leaf.question, typed)
            receipt = await client.answer(run_id, value, leaf.question_id)
        return receipt, await waits_for_whom(client, record)


def _find_question(document: Document, question_id: str | None) -> OpenLeaf | None:
    asked = questions(document)
    if question_id is None:
        return asked[0] if len(asked) == 1 else None
    return next((leaf for leaf in asked if question_id in (leaf.question_id, leaf.leaf)), None)


async def _ask(leaf: OpenLeaf, question: Question) -> Json:
    if not sys.stdin.isatty():
        raise BadInput(f"name an answer to {leaf.name!r}: {expected_text(question)}")
    return await put(question, Typed())


@click.command()
@run_argument
@click.argument("name", metavar="NAME")
@click.argument("payload", metavar="[PAYLOAD_JSON]", required=False)
@click.option("--dedupe", metavar="ID", help="Sending a signal with the same id again does nothing more.")
@shared_options
def signal(run_id: str, name: str, payload: str | None, dedupe: str | None, store: str | None, as_json: bool) -> int:
    """Send a signal to a run. It is kept until the workflow waits for it.

    If the run waits for other names just now, or for none, that is told: the name may be a slip of the pen.

    \b
    Example:
      buoy signal order-1 packed '{"boxes": 2}' --dedupe scan-17

    Exit code: 0 stored, 2 bad input or no such run, 5 store unusable.
    """
    body = None if payload is None else parse_json(payload, "PAYLOAD_JSON")
    receipt, text, waits = go(_signal(run_id, name, body, dedupe, store))
    said = "was sent before; nothing more was done" if receipt.duplicate else f"sent; {text}"
    hint = None if receipt.duplicate or name in waits else _not_waited_for(run_id, name, waits)
    return _tell_sent(run_id, receipt, said, hint, as_json=as_json)


async def _signal(
    run_id: str, name: str, body: object, dedupe: str | None, store: str | None
) -> tuple[Receipt, str, tuple[str, ...]]:
    """With the names that it waited for before: afterwards somebody may have taken the signal already."""
    async with connected(store) as client:
        doc = (await client.record(run_id)).document
        waits = tuple(dict.fromkeys(leaf.name for leaf in doc.open if leaf.kind == "signal"))
        receipt = await client.signal(run_id, name, body, dedupe)
        return receipt, await waits_for_whom(client, await client.record(run_id)), waits


def _not_waited_for(run_id: str, name: str, waits: tuple[str, ...]) -> str:
    """A slip of the pen would wait for ever, so it is told; but the workflow may come to that name later."""
    others = f"it waits for {listed([repr(each) for each in waits])}" if waits else "it waits for no signal"
    return f"note: run {run_id} does not wait for {name!r} now: {others}; {name!r} is kept until it does"


def _tell_sent(run_id: str, receipt: Receipt, text: str, hint: str | None = None, *, as_json: bool) -> int:
    if as_json:
        facts = {"run_id": run_id, "message": receipt.number, "duplicate": receipt.duplicate, "text": text}
        print_json(facts if hint is None else {**facts, "hint": hint})
        return Exit.OK
    click.echo(text)
    if hint is not None:
        click.echo(hint, err=True)
    return Exit.OK


@click.command()
@run_argument
@click.option("--reason", metavar="TEXT", help="For the record.")
@shared_options
def pause(run_id: str, reason: str | None, store: str | None, as_json: bool) -> int:
    """Pause a run: no new step starts; those under way end and are recorded.

    \b
    Example:
      buoy pause order-1 --reason "wait for the new price list"

    Exit code: 0 done or asked for, 2 not possible, 5 store unusable.
    """
    return _request(run_id, store, lambda client: client.pause(run_id, reason), as_json=as_json)


@click.command()
@run_argument
@click.option("--reason", metavar="TEXT", help="For the record, and for who waits for the result.")
@shared_options
def cancel(run_id: str, reason: str | None, store: str | None, as_json: bool) -> int:
    """Cancel a run: its code sees a cancellation, cleans up, and the run ends as cancelled.

    \b
    Example:
      buoy cancel order-1 --reason "ordered twice"

    Exit code: 0 done or asked for, 2 not possible, 5 store unusable.
    """
    return _request(run_id, store, lambda client: client.cancel(run_id, reason), as_json=as_json)


def _request(
    run_id: str, store: str | None, ask: Callable[[Client], Coroutine[Any, Any, Requested]], *, as_json: bool
) -> int:
    async def work() -> Requested:
        async with connected(store) as client:
            return await ask(client)

    found = go(work())
    if as_json:
        print_json({"run_id": run_id, "done": found.done, "text": found.text})
    else:
        click.echo(found.text)
    return Exit.OK
