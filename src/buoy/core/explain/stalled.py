"""Stalled runs in words: nothing will wake them, or no live worker can take them.

Invariant: a run that was woken by something it does not wait for still waits, and the text says so.
"""

from __future__ import annotations

from msgspec.structs import replace

from buoy.core.advice import Advice, act
from buoy.core.diagnosis.facts import Facts
from buoy.core.diagnosis.takers import can_run, what_is_missing
from buoy.core.diagnosis.wakeups import would_use
from buoy.core.durations import in_words
from buoy.core.explain.by_status import TELLERS
from buoy.core.explain.narrative import Narrative, answers, bring_back, signals, stops, take_up, under_way
from buoy.core.explain.phrases import Wording
from buoy.core.limits import SWEEP_S
from buoy.core.log.lifecycle import RESTING, Status
from buoy.core.spec.model import knows


def stalled(facts: Facts, words: Wording) -> Narrative:
    """The run should continue, but nothing will wake it, or no live worker can take it."""
    document = facts.document
    missing = what_is_missing(document, facts.runners)
    if facts.due_at is None:
        return Narrative(
            headline=f"{document.run_id} is {document.status.replace('_', ' ')}, and nothing will wake it.",
            now="No runner holds it, and no wake-up is set" + (" to read its messages." if facts.unread else "."),
            wrong=("an active run has no wake-up",),
            next=(
                f"The next whole sweep puts it into its queue again. A live worker sweeps every {in_words(SWEEP_S)}.",
            ),
            you_can=(*take_up(facts, words), *bring_back(facts, words)),
        )
    busy = under_way(facts)
    at_work = document.status in (Status.RUNNING, Status.COMPENSATING)
    narrative = TELLERS[document.status](facts, words)
    if document.status is Status.PAUSED:
        wrong = (*narrative.wrong, missing or "no worker can take it")
        return replace(narrative, wrong=wrong, you_can=(*narrative.you_can, *take_up(facts, words)))
    if document.status in RESTING and not _called(facts):
        return _woken_for_nothing(narrative, missing)
    queued = document.status in (Status.PENDING, Status.INTERRUPTED)
    begun = narrative.headline.rstrip(".") if queued else f"{document.run_id} should continue"
    left = f"No process works on it. Next: {busy or 'its own code'}."
    return Narrative(
        headline=f"{begun}, but no live worker can run it.",
        now=left if at_work else narrative.now,
        wrong=(missing or "no worker can take it",),
        next=(f"It stays in its queue, and nothing is lost. {_who_takes_it(facts)}", *_scope_rule(facts)),
        you_can=(
            *_continued(facts),
            *answers(facts, words),
            *signals(facts, words),
            *take_up(facts, words),
            *(bring_back(facts, words) if document.status is Status.INTERRUPTED else ()),
            *stops(facts, words),
        ),
    )


def _who_takes_it(facts: Facts) -> str:
    if any(can_run(facts.document, each) for each in facts.runners):
        return "The worker that does not react takes it as soon as it does; another one that knows it takes it at once."
    return "A worker that knows it takes it at once."


def _continued(facts: Facts) -> tuple[Advice, ...]:
    """The workers that could take it, and are only stopped."""
    able = [each for each in facts.runners if each.stopped and can_run(facts.document, each)]
    return tuple(act(f"continue the worker that is stopped: kill -CONT {each.pid}") for each in able[:1])


def _scope_rule(facts: Facts) -> tuple[str, ...]:
    """Workers that know the workflow are alive, but none in the run's env and stack."""
    document = facts.document
    others = [each for each in facts.runners if each.role == "worker" and not each.gone]
    if any(can_run(document, each) for each in others) or not any(
        knows(each.workflows, document.workflow) and document.queue in each.queues for each in others
    ):
        return ()
    env = "the default env" if document.env is None else f"env {document.env!r}"
    stack = "" if document.stack is None else f" and stack {document.stack!r}"
    return (
        f"The run was started in {env}{stack}, and a worker takes only runs of its own env and stack. BUOY_ENV and "
        "BUOY_STACK (or env and stack in buoy.toml) set them when a worker starts; without them it works in the "
        "default env, for all stacks.",
    )


def _called(facts: Facts) -> bool:
    """True if something that it waits for is there, so that it would continue if a worker took it."""
    late = facts.document.wake_at is not None and facts.document.wake_at <= facts.now
    return late or not facts.messages or any(would_use(facts, each) for each in facts.messages)


def _woken_for_nothing(narrative: Narrative, missing: str | None) -> Narrative:
    """It still waits. What came is kept, and is nothing that it uses now."""
    return replace(
        narrative,
        wrong=(f"{missing or 'no worker can take it'}; what woke it is not what it waits for",),
    )
