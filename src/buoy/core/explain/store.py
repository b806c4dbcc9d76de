"""A store that refuses writes, in words: what that means for a run, and how to end it.

Invariant: the evidence is a failed test write. Data that the store accepted before is never in doubt.
"""

from __future__ import annotations

from msgspec.structs import replace

from buoy.core.advice import act
from buoy.core.diagnosis.facts import Facts, StoreFacts
from buoy.core.diagnosis.health import Health
from buoy.core.explain.narrative import Narrative

_WORDS = {
    "full": ("no space is left on its disk", "free some space on the disk that holds it"),
    "quota": ("the disk quota is used up", "free some space, or raise the quota"),
    "read_only": ("its disk is mounted read-only", "find out why, then mount the disk for writing again"),
    "not_permitted": ("this user may not write there", "give this user permission, or use the user of the workers"),
    "file_size": ("a limit on the size of files is reached", "raise the limit (ulimit -f)"),
    "no_replica": (
        "its server waits for a synchronous replica, and none is connected",
        "start that replica, or reset synchronous_standby_names at the server",
    ),
    "standby": (
        "its server only reads: it is a standby, or its transactions are read-only",
        "name all hosts and target_session_attrs=read-write in the URL, or promote the standby",
    ),
    "other": ("the system refuses", "look at what the system says about that disk"),
}


def refusal_text(store: StoreFacts) -> str:
    """One line about a store that refuses writes."""
    words, _ = _WORDS.get(store.cause, _WORDS["other"])
    free = "" if store.free_bytes is None else f", {store.free_bytes:,} bytes free"
    return f"the store cannot be written: {words} ({store.place}: {store.detail}{free})"


def with_store(narrative: Narrative, facts: Facts, health: Health) -> Narrative:
    """Adds that the store of the run refuses writes."""
    store, document = facts.store, facts.document
    if store is None or document.ended:
        return narrative
    words, advice = _WORDS.get(store.cause, _WORDS["other"])
    if store.cause == "not_permitted":
        # This concerns the user who asks, not the workers.
        return replace(narrative, evidence=(*narrative.evidence, f"seen by a user who may not write: {store.place}"))
    if health is Health.DEAD:
        return replace(
            narrative,
            wrong=(*narrative.wrong, refusal_text(store)),
            next=(f"Nothing until the store can be written again: {words}.", *narrative.next),
            you_can=(act(advice), *narrative.you_can),
        )
    return replace(
        narrative,
        headline=f"{document.run_id} cannot continue: its store cannot be written, since {words}.",
        now=f"{narrative.now.rstrip('.')}. What happens now cannot be recorded: a step may have ended already.".lstrip(
            ". "
        ),
        wrong=(refusal_text(store), *narrative.wrong),
        next=(
            "Nothing until the store can be written again. A live worker keeps its unwritten events, tries again by "
            "itself, and then continues. Recorded events are safe.",
            "If the worker ends before that, the step that it executed runs again, with the same idempotency key.",
        ),
        you_can=(act(advice), *narrative.you_can),
    )
