"""Attempt: what a step can ask and report about its own attempt.

Outside of workflows (in a unit test of a step, for example) the same calls work, and their reports are dropped. In a
thread without the step's context they raise an error, because their reports would be lost in silence.
Invariant: no two calls of steps share an idempotency key. Where the key is not known, asking for it is an error.
"""

from __future__ import annotations

import math
import threading
from numbers import Real

import msgspec

from buoy.core.limits import CHANNEL_CHARS_MAX, PROGRESS_NOTE_CHARS_MAX, PUBLISH_VALUE_BYTES_MAX
from buoy.core.log import codec
from buoy.core.log.events import PublishedItem
from buoy.core.log.storable import storable_text
from buoy.engine.authoring.context import CURRENT, StepContext, step_context
from buoy.errors import BadInput, NotAllowedHere


def progress(done: float | None = None, total: float | None = None, note: str = "") -> None:
    """Tells how far the step has come; shown by `buoy show` and `buoy ps`. Cheap; not a durable record."""
    if not isinstance(note, str):
        raise BadInput(f"the note of buoy.progress must be a text: {note!r}")
    numbers = _measure(done, "done"), _measure(total, "total")
    if not _plain_call():
        context = step_context("buoy.progress")
        context.reports.progressed(context.leaf, *numbers, storable_text(note, PROGRESS_NOTE_CHARS_MAX))


def publish(value: object, channel: str = "default") -> None:
    """Adds a value to the run's live stream: a token of a model, a line of a log. Returns at once.

    The run keeps its values in order, up to a limit (`docs/python.md`). A replay publishes nothing. A step that a crash
    cut off runs again, and publishes again.
    """
    if not isinstance(channel, str) or not 1 <= len(channel) <= CHANNEL_CHARS_MAX or not channel.isprintable():
        raise BadInput(f"the channel of buoy.publish must have 1 to {CHANNEL_CHARS_MAX} characters: {channel!r}")
    stored = codec.encode(value, "the value of buoy.publish", PUBLISH_VALUE_BYTES_MAX, verb="publish")
    if not _plain_call():
        context = step_context("buoy.publish")
        context.reports.published(PublishedItem(context.leaf, stored, channel, context.attempt))


def _plain_call() -> bool:
    """Whether no step is called here, in a unit test say. Other threads are mostly those of a step."""
    return CURRENT.get() is None and threading.current_thread() is threading.main_thread()


def _measure(value: object, name: str) -> float | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float | Real) or not math.isfinite(value):
        raise BadInput(f"{name} of buoy.progress must be a number: {value!r}; write buoy.progress(3, 10, 'pages')")
    return value if isinstance(value, int) else float(value)  # numbers of other libraries have no JSON form


class Info(msgspec.Struct, frozen=True):
    """Where the calling code stands. `key` is the idempotency key, in steps only."""

    run_id: str
    step: str | None = None
    leaf: str | None = None
    attempt: int | None = None
    key: str | None = None


def info() -> Info:
    """The run, and inside a step its name, attempt and idempotency key."""
    context = CURRENT.get()
    if context is None:
        raise NotAllowedHere("buoy.info works in workflows and steps only")
    if isinstance(context, StepContext):
        return Info(context.run_id, context.name, context.leaf, context.attempt, context.whole_key)
    return Info(context.run_id)


def idempotency_key() -> str:
    """Inside a step: the same for every attempt and after every crash. Hand it to the service that you call.

    A step that another step calls has a key of its own, derived from the other's. Called outside of any run, a step has
    a random key, another one for each call.
    """
    return step_context("buoy.idempotency_key").whole_key


def abandoned() -> bool:
    """For long sync steps: true once the run has stopped waiting (time-out, cancellation), so the step may stop."""
    return not _plain_call() and step_context("buoy.abandoned").given_up
