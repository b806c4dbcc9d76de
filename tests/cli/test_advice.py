"""Advice as data: every command that `buoy why` names is one that the command line takes, in every situation."""

from __future__ import annotations

import shlex
from typing import get_args

import click
import pytest

from buoy.cli.main import main
from buoy.core.advice import RUN, Advice, Kind, each_once, kind_of
from buoy.core.bundle.format import parse
from buoy.core.diagnosis.catalogue import CATALOGUE
from buoy.core.diagnosis.facts import Facts, milestones_of
from buoy.core.explain.explain import Explanation, explain, explain_broken
from buoy.core.explain.phrases import Wording
from buoy.core.log.document import document
from buoy.core.log.state import fold
from buoy.errors import BadInput, CorruptLog
from tests.cases.test_cases import FOLDER
from tests.core.cases import NOW, WORKER
from tests.core.test_explain import TABLE
from tests.fixtures.release_0_1_0.runs import BUNDLES

from .conftest import ASKING, Buoy

WORDS = Wording(store="sqlite:///a b.db")


def _parsed(command: str) -> click.Context:
    """As the command line reads it, without doing it."""
    program, verb, *rest = shlex.split(command)
    assert program == "buoy"
    assert isinstance(main, click.Group)
    parent = click.Context(main, **main.context_settings)  # a command keeps the help option of its first context
    found = main.get_command(parent, verb)
    assert found is not None, verb
    if isinstance(found, click.Group):
        parent = click.Context(found, parent)
        verb, *rest = rest
        found = found.get_command(parent, verb)
        assert found is not None, verb
    return found.make_context(verb, list(rest), parent)


def _explained() -> list[tuple[str, Explanation]]:
    found = [(str(name), explain(facts, WORDS)) for name, facts, *_ in TABLE]
    for path in (*sorted(FOLDER.glob("*/bundle.json")), *BUNDLES):
        try:
            bundle = parse(path.read_bytes())
            folded = document(fold(bundle.run_id, bundle.log))
        except (BadInput, CorruptLog):
            continue  # refused, which other tests are about
        for runners in ((), (WORKER,)):
            facts = Facts(
                document=folded, now=NOW, log=bundle.log, milestones=milestones_of(bundle.log), runners=runners
            )
            found.append((f"{path.parent.name}/{path.stem}", explain(facts, WORDS)))
    return [*found, ("broken", explain_broken("r", "no bytes", WORDS))]


EXPLAINED = _explained()


@pytest.mark.parametrize(("name", "told"), EXPLAINED, ids=[name for name, _ in EXPLAINED])
def test_each_command_is_one_that_the_command_line_takes(name: str, told: Explanation) -> None:
    assert [each.line for each in told.advice] == list(told.you_can)
    for each in told.advice:
        assert each.kind in get_args(Kind) and each.text
        if each.command is None:
            assert (each.kind, each.blanks, each.env) == ("act", (), {})
            assert "buoy " not in each.text.replace("@buoy ", ""), "a command belongs in its own field"
            continue
        context = _parsed(each.command)
        assert context.params["store"] == "sqlite:///a b.db"
        assert set(each.blanks) <= set(shlex.split(each.command))


def test_the_situations_have_advice_of_nearly_every_kind() -> None:
    """So that the test above is about something."""
    seen = {each.kind for _, told in EXPLAINED for each in told.advice}
    assert len(EXPLAINED) > 100
    assert set(get_args(Kind)) - seen <= {"jump", "repair"}, seen


def test_each_command_of_the_catalogue_is_one_that_the_command_line_takes() -> None:
    for entry in CATALOGUE.values():
        for hint in entry.you_can:
            if hint.command:
                assert kind_of(hint.command) in get_args(Kind)
                _parsed(WORDS.command(*("r" if word == RUN else word for word in hint.command)))


def test_a_command_that_does_not_parse_is_noticed() -> None:
    for command in ("buoy pause", "buoy resume r --now", "buoy pause r s"):
        with pytest.raises((click.ClickException, BadInput)):
            _parsed(command)


def test_the_kind_follows_from_the_command_and_not_from_the_text() -> None:
    assert WORDS.advise("start a worker", "pause", "r").kind == "pause"
    assert WORDS.advise("pause it", "retry", "r", "--dry-run").kind == "look"
    assert WORDS.advise("look", "doctor", "--fix").kind == "repair"
    assert WORDS.advise("ask for one", "slurm", "allocations", "r").kind == "look"
    assert WORDS.advise("see them", "slurm", "regenerate", "r").kind == "recover"


def test_variables_that_a_command_needs_are_apart_from_it() -> None:
    found = Advice("drive", "drive it", "buoy run FILE.py:w", ("FILE.py:w",), {"BUOY_ENV": "", "BUOY_STACK": "a b"})
    assert found.line == "drive it: BUOY_ENV= BUOY_STACK='a b' buoy run FILE.py:w"


def test_a_command_is_named_once_however_it_is_worded() -> None:
    one, other = WORDS.advise("do it", "resume", "r"), WORDS.advise("continue it", "resume", "r")
    assert each_once([one, other, Advice("act", "wait"), Advice("act", "wait")]) == (one, Advice("act", "wait"))


def test_why_shows_advice_as_json(buoy: Buoy) -> None:
    buoy("start", f"{ASKING}:asked_then_signalled", "--id", "r")
    told = buoy.json("why", "r")
    first = told["advice"][0]
    assert {"kind", "text", "command", "blanks", "env"} == first.keys()
    assert (first["kind"], first["blanks"]) == ("start_worker", ["FILE.py"])
    assert first["command"] == shlex.join(["buoy", "worker", "FILE.py", "--store", buoy.store])
    assert [each["text"] for each in told["advice"] if each["kind"] == "cancel"] == ["cancel it"]
