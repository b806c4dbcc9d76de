"""Prompts: asks one question on the terminal until the answer fits.

A form is asked field by field, and each value is judged at once. If the whole form does not fit, all problems are
listed, and the typed values become the defaults of the next round.
"""

from __future__ import annotations

import msgspec

from buoy.cli.terminal.output import say
from buoy.cli.terminal.questions.answers import numbered, parse_answer, prompt, prompt_lines
from buoy.cli.terminal.questions.typed import Typed
from buoy.core.log.form_fields import Field, fields_of, option_text, parse_field
from buoy.core.log.forms import check_form
from buoy.core.log.questions import Json, Question, check_answer
from buoy.errors import BadInput


class InputEnded(BadInput):
    """The person closed the input before the question was answered."""


async def put(question: Question, typed: Typed) -> Json:
    """The answer, in its stored form."""
    fields = fields_of(question.schema) if question.kind == "form" and question.schema is not None else None
    if fields is not None:
        return await _put_form(question, fields, typed)
    say("\n".join(prompt_lines(question)), err=True)
    while True:
        text = await _line(question, prompt(question), typed)
        try:
            return check_answer(question, parse_answer(question, numbered(question, text)))
        except BadInput as error:
            refuse(error)


async def _put_form(question: Question, fields: list[Field], typed: Typed) -> Json:
    say("\n".join(each for each in (question.title, question.detail) if each), err=True)
    before: dict[str, msgspec.Raw] = {each.name: each.default for each in fields if each.default is not None}
    while True:
        given: dict[str, Json] = {}
        for field in fields:
            await _put_field(question, field, before.get(field.name), typed, given)
        try:
            return check_answer(question, given)
        except BadInput as error:
            refuse(error)
        before = {name: msgspec.Raw(msgspec.json.encode(value)) for name, value in given.items()}


async def _put_field(
    question: Question, field: Field, before: msgspec.Raw | None, typed: Typed, given: dict[str, Json]
) -> None:
    """Asks for one field. An empty line takes the default in brackets, or skips an optional field."""
    if field.detail:
        say(f"  {field.detail}", err=True)
    named = field.title if field.title == field.name else f"{field.title} ({field.name})"
    default = "" if before is None else f" [{option_text(before)}]"
    optional = "" if field.required or before is not None else ", may be left empty"
    while True:
        text = await _line(question, f"  {named}, {field.expects()}{optional}{default}: ", typed)
        if not text.strip() and before is not None:
            given[field.name] = msgspec.json.decode(before)
            return
        if not text.strip() and not field.required:
            return
        try:
            if not text.strip() and field.kind != "string":
                raise BadInput(f"{field.name}: expected {field.expects()}, found nothing")
            value = parse_field(field, text)
            check_form(question.title, question.schema or {}, {**given, field.name: value}, field=field.name)
            given[field.name] = value
            return
        except BadInput as error:
            refuse(error)


def refuse(error: Exception) -> None:
    say(f"not accepted: {error}", err=True)


async def _line(question: Question, text: str, typed: Typed) -> str:
    say(text, nl=False, err=True)
    line = await typed.line()
    if line is None:
        say(err=True)
        raise InputEnded(f"the input ended before {question.title!r} was answered")
    return line
