"""Live workers that could take a run, in words: what would otherwise show only when they try.

Invariant: the text covers only runs that wait for a worker and have one.
"""

from __future__ import annotations

from buoy.core.diagnosis.facts import Facts, RunnerFacts
from buoy.core.diagnosis.takers import can_run
from buoy.core.durations import in_words
from buoy.core.explain import phrases
from buoy.core.limits import BEAT_S
from buoy.core.spec.model import is_spec


def about_takers(facts: Facts) -> tuple[str, ...]:
    """What a person should know before a worker takes the run."""
    document = facts.document
    if facts.holder is not None or document.ended or facts.unreadable is not None or document.pause is not None:
        return ()
    able = [each for each in facts.runners if can_run(document, each)]
    return (*_silent(able), *_other_code(able, facts)) if able else ()


def _silent(able: list[RunnerFacts]) -> tuple[str, ...]:
    """A live process without a heartbeat may be blocked, and then takes nothing."""
    ages = [each.beat_age_s or 0.0 for each in able]
    if min(ages) <= 2 * BEAT_S:
        return ()
    names = phrases.listed([phrases.runner_text(each) for each in able])
    return (
        f"The workers that could run it have sent no heartbeat for {in_words(min(ages))} and may be blocked: {names}.",
    )


def _other_code(able: list[RunnerFacts], facts: Facts) -> tuple[str, ...]:
    """Live workers try their version of the code on the log, and pause the run if it does not fit."""
    document = facts.document
    have = sorted({version for each in able for version in each.workflows.get(document.workflow, ())})
    # Before the first claim the log has nothing that could differ.
    if (
        is_spec(document.workflow)
        or not document.version
        or not have
        or document.version in have
        or not document.claims
    ):
        return ()
    return (
        f"It is bound to version {document.version} of its code, and live workers have {phrases.listed(have)}. A "
        "worker tries its version on the log. If it does not fit, the worker pauses the run, and nothing is lost.",
    )
