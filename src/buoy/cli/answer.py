"""`buoy answer`: answer an open question of a run."""

from __future__ import annotations

import sys

import click

from buoy.cli.terminal.lines.messages import print_sent
from buoy.cli.terminal.options.run_ids import run_argument
from buoy.cli.terminal.program import connected, go, shared_options
from buoy.cli.terminal.questions.answers import parse_answer
from buoy.cli.terminal.questions.prompts import put
from buoy.cli.terminal.questions.typed import Typed
from buoy.core.explain.phrases import expected_text
from buoy.core.log.document import OpenLeaf
from buoy.core.log.questions import Json
from buoy.errors import BadInput
from buoy.operations.control import messages
from buoy.operations.control.messages import Sent


@click.command()
@run_argument
@click.argument("value", metavar="[VALUE]", required=False)
@click.option("--question", metavar="ID", help="The question to answer, if several are open.")
@click.option("--form", metavar="JSON", help="The answer to a form, as a JSON object.")
@shared_options
def answer(
    run_id: str, value: str | None, question: str | None, form: str | None, store: str | None, as_json: bool
) -> int:
    """Answer an open question of a run.

    VALUE is yes or no, an option, several options separated by commas (or a JSON list), a text, or JSON for a form.
    Without VALUE, asks on the terminal. A wrong answer is refused, and the question stays open.

    \b
    Example:
      buoy answer order-1 yes

    Exit code: 0 accepted, 2 refused or no such question, 5 store unusable.
    """
    if value is not None and form is not None:
        raise BadInput("the answer is given twice: as VALUE and with --form; give one of them")
    return print_sent(go(_answer(run_id, form if value is None else value, question, store)), as_json=as_json)


async def _answer(run_id: str, typed: str | None, question_id: str | None, store: str | None) -> Sent:
    async with connected(store) as client:
        leaf = await messages.open_question(client, run_id, question_id)
        return await messages.answer(client, run_id, await _value(leaf, typed), leaf.question_id)


async def _value(leaf: OpenLeaf, typed: str | None) -> Json | object:
    assert leaf.question is not None
    if typed is not None:
        return parse_answer(leaf.question, typed)
    if not sys.stdin.isatty():
        raise BadInput(f"no answer to {leaf.name!r}; give one: {expected_text(leaf.question)}")
    return await put(leaf.question, Typed())
