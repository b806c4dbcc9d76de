"""Prompts: puts one question to the person at this terminal, again and again until the answer fits."""

from __future__ import annotations

import click

from buoy.cli.answers import numbered, parse_answer, prompt, prompt_lines
from buoy.cli.typed import Typed
from buoy.core.questions import Json, Question, check_answer
from buoy.errors import BadInput


class InputEnded(BadInput):
    """The person closed the input before the question was answered."""


async def put(question: Question, typed: Typed) -> Json:
    """The answer, in its stored form."""
    click.echo("\n".join(prompt_lines(question)), err=True)
    while True:
        text = await _line(question, prompt(question), typed)
        try:
            return check_answer(question, parse_answer(question, numbered(question, text)))
        except BadInput as error:
            refuse(error)


def refuse(error: Exception) -> None:
    click.echo(f"not accepted: {error}", err=True)


async def _line(question: Question, text: str, typed: Typed) -> str:
    click.echo(text, nl=False, err=True)
    line = await typed.line()
    if line is None:
        click.echo(err=True)
        raise InputEnded(f"the input ended before {question.title!r} was answered")
    return line
