"""Runs that do not move, in words: a blocked owner, a long step, or a wait that nothing can end.

Invariant: advice that would kill a healthy step also says what that costs: the step runs again.
"""

from __future__ import annotations

from msgspec.structs import replace

from buoy.core.advice import act
from buoy.core.diagnosis.catalogue import named
from buoy.core.diagnosis.facts import Facts, RunnerFacts
from buoy.core.diagnosis.standstill import Standstill, standing_still, waits_for_nothing, without_progress_s
from buoy.core.diagnosis.takers import blocker
from buoy.core.durations import in_words
from buoy.core.explain import phrases
from buoy.core.explain.by_status import wait_line
from buoy.core.explain.narrative import Narrative, stops, under_way
from buoy.core.explain.phrases import Wording

_TAKEN_OVER = "As soon as the end of the process is proven, the run is taken over."


def suspect(facts: Facts, words: Wording) -> Narrative:
    """Its owner lives but does not move it."""
    document, holder = facts.document, facts.holder
    assert holder is not None
    still = standing_still(facts) or Standstill("silent", "it does not move")
    busy = under_way(facts)
    waits = [wait_line(each, facts, words) for each in document.open if each.kind != "group"]
    state = f"It is running {busy}." if busy else f"It waits: {phrases.listed(waits)}." if waits else ""
    what, following, can = _by_cause(still, facts, holder)
    ends = f"or end the process; another worker then takes its runs over: kill -9 {holder.pid}"
    return Narrative(
        headline=f"{document.run_id} {what}",
        now=f"{state or f'It is {document.status}.'} {_unrecorded(busy)}".rstrip(),
        wrong=(still.text,),
        next=(*following, _TAKEN_OVER),
        you_can=(*map(act, can), act(ends), *stops(facts, words)),
    )


def _unrecorded(busy: str) -> str:
    return "The work of its step is not recorded until the step ends." if busy else ""


def _by_cause(still: Standstill, facts: Facts, holder: RunnerFacts) -> tuple[str, tuple[str, ...], tuple[str, ...]]:
    """The headline's end, what happens next, and what a person can do first."""
    place = f"process {holder.pid} on {holder.host}"
    match still.cause:
        case "stopped":
            return (
                "does not move: the process that drives it is stopped.",
                ("Nothing happens until that process is continued or ended: it lives, and Buoy waits.",),
                (f"continue it: kill -CONT {holder.pid}",),
            )
        case "loop":
            return _held_up(facts, holder)
        case "overdue" | "unread":
            return (
                "should have continued, and its worker does not react.",
                (
                    f"It continues as soon as {place} reacts: it may be overloaded, or held up by a blocking call "
                    "(time.sleep, a request) in an async step.",
                ),
                (f"see what {place} does and writes",),
            )
        case _:
            silent = "" if holder.beat_age_s is None else f" for {in_words(holder.beat_age_s)}"
            return (
                f"may hang: the process that drives it has been silent{silent}.",
                ("Buoy waits: a living process may be silent (a long call into C code, a suspended machine).",),
                (f"if it was only stopped (SIGSTOP, Ctrl-Z), continue it: kill -CONT {holder.pid}",),
            )


def _held_up(facts: Facts, holder: RunnerFacts) -> tuple[str, tuple[str, ...], tuple[str, ...]]:
    """One call blocks the event loop of the whole worker."""
    loop = holder.loop
    assert loop is not None
    what = "blocks its whole worker" if loop.run_id == facts.document.run_id else "does not move: its worker is blocked"
    return (
        f"{what}. {_capital(blocker(loop))} has held the event loop for {in_words(loop.held_s)}.",
        ("When that call returns, the worker continues with all its runs by itself. Until then none of them moves.",),
        (
            "make that call not block: a plain `def` step runs in a thread of its own; in an async step, await "
            "asyncio.to_thread(...) or asyncio.sleep(...)",
        ),
    )


def _capital(text: str) -> str:
    return f"{text[0].upper()}{text[1:]}"


def with_standstill(narrative: Narrative, facts: Facts, words: Wording) -> Narrative:
    """Adds that a run which looks healthy has not moved for long, or can never move again."""
    stuck = waits_for_nothing(facts)
    if stuck is not None:
        return _waits_for_nothing(narrative, facts, certain=stuck == "certainly")
    long_s = without_progress_s(facts)
    if long_s is None or standing_still(facts) is not None:
        return narrative
    return _long(narrative, facts, long_s)


def _waits_for_nothing(narrative: Narrative, facts: Facts, *, certain: bool) -> Narrative:
    run_id = facts.document.run_id
    nothing = "no step, question, signal, timer or child is open"
    if not certain:
        quiet = in_words(facts.now - facts.document.updated_at)
        return replace(
            narrative,
            headline=f"{run_id} runs its own code, and has asked for nothing for {quiet}.",
            next=(
                "If its code computes, it continues by itself when the computation ends.",
                "If its code waits (an asyncio.Event, Queue or Future that no part of it sets), it waits for ever: "
                f"{nothing}.",
            ),
        )
    return replace(
        narrative,
        headline=f"{run_id} can never continue: its code waits for something that nothing will bring.",
        now=f"Its code has run as far as it can, and {nothing}. {narrative.now}".strip(),
        next=(
            "Nothing: no event can wake it. After a restart it would wait in the same place.",
            "Signals to it are kept, but its code waits for none.",
        ),
    )


def _long(narrative: Narrative, facts: Facts, long_s: float) -> Narrative:
    """A step takes long in a worker that is alive."""
    holder = facts.holder
    assert holder is not None
    active = phrases.active_leaves(facts.document)
    what = phrases.leaf_text(active[0]) if active else "its code"
    age = in_words(long_s)
    beat = "" if holder.beat_age_s is None else f" (last heartbeat {in_words(holder.beat_age_s)} ago)"
    return replace(
        narrative,
        next=(
            *narrative.next,
            f"It has not moved for {age}, and may hang: its worker is alive{beat}, so Buoy waits "
            f"({named('H3')}, a notice).",
        ),
        you_can=(
            *narrative.you_can,
            act(f"if {what} should have ended by now, look at process {holder.pid} on {holder.host}"),
            act(
                f"if it hangs, end the process; {what} then runs again, with the same idempotency key: "
                f"kill -9 {holder.pid}"
            ),
            act("to bound such a step: @buoy.step(timeout=...); to see that it moves: buoy.progress(...) in it"),
        ),
    )
