"""Who would take a run, in words: what is true of those who could, and would otherwise show only when they try.

Invariant: nothing is said about a run that somebody holds, that has ended, or that nobody can take: that is said
elsewhere.
"""

from __future__ import annotations

from buoy.core.diagnosis.facts import Facts, RunnerFacts
from buoy.core.diagnosis.takers import can_run
from buoy.core.durations import in_words
from buoy.core.explain import phrases
from buoy.core.limits import BEAT_S
from buoy.core.spec.model import is_spec


def about_takers(facts: Facts) -> tuple[str, ...]:
    """What a person should know before somebody takes the run."""
    document = facts.document
    if facts.holder is not None or document.ended or facts.unreadable is not None or document.pause is not None:
        return ()
    able = [each for each in facts.runners if can_run(document, each)]
    return (*_silent(able), *_other_code(able, facts)) if able else ()


def _silent(able: list[RunnerFacts]) -> tuple[str, ...]:
    """A process that lives and is not heard of takes nothing."""
    ages = [each.beat_age_s or 0.0 for each in able]
    if min(ages) <= 2 * BEAT_S:
        return ()
    names = phrases.listed([phrases.runner_text(each) for each in able])
    return (f"But who could take it has not been heard of for {in_words(min(ages))} and may stand still: {names}.",)


def _other_code(able: list[RunnerFacts], facts: Facts) -> tuple[str, ...]:
    """A run that began under other code than the live workers have is tried, and paused if it does not fit."""
    document = facts.document
    have = sorted({version for each in able for version in each.workflows.get(document.workflow, ())})
    # Before its first event of work nothing can misfit.
    if (
        is_spec(document.workflow)
        or not document.version
        or not have
        or document.version in have
        or not document.claims
    ):
        return ()
    return (
        f"It is bound to version {document.version} of its code, and live workers have {phrases.listed(have)}: that "
        "is tried on its log; if it does not fit, the run is paused, and nothing is lost.",
    )
