"""Mailbox: what reaches a run through its inbox, and the event by which each message is consumed.

Invariants: messages are looked at in the order of their numbers. Each is consumed by exactly one event that names it,
or stays unread (a signal that the run does not wait for yet). A duplicate (same dedupe id) is consumed without effect.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec

from buoy.core.batch.allocations import cluster_event
from buoy.core.batch.lots import JobsMessage
from buoy.core.ids import LeafId, RunId
from buoy.core.limits import REWIND_HOLD_MAX_S
from buoy.core.log import codec
from buoy.core.log import events as e
from buoy.core.log.leaf import Leaf
from buoy.core.log.questions import check_answer
from buoy.engine.code.replay import child_outcome
from buoy.errors import BadInput
from buoy.ports.records import Message

if TYPE_CHECKING:
    from buoy.engine.run.execution import Execution


class AnswerMessage(msgspec.Struct, frozen=True):
    """Body of a message of kind `answer`."""

    question_id: str
    answer: msgspec.Raw


class Signal(msgspec.Struct, frozen=True):
    """Body of a message of kind `signal`."""

    name: str
    payload: msgspec.Raw = e.NULL


class Reason(msgspec.Struct, frozen=True):
    """Body of the messages `pause`, `resume` and `cancel`.

    `hold_s`: a pause that ends by itself after this time. `takes_back`: a resume that ends the pause of that message
    and no other. `version`: a resume only to see whether that version of the code fits.
    """

    reason: str | None = None
    hold_s: float | None = None
    takes_back: int | None = None
    version: str | None = None


class ChildEnd(msgspec.Struct, frozen=True, omit_defaults=True):
    """Body of a message of kind `child_finished`."""

    leaf: LeafId
    child: RunId
    status: str
    result: msgspec.Raw = e.NULL
    error: e.ErrorInfo | None = None


# What a paused run looks at; all other messages wait until the pause is over.
CONTROL = ("pause", "resume", "cancel")


class Mailbox:
    """The inbox of one execution."""

    def __init__(self, execution: Execution) -> None:
        self._execution = execution
        self._signals: dict[str, deque[tuple[int, msgspec.Raw]]] = {}
        # For a question or a child that the code is about to ask for again, in the order of their numbers.
        self._kept: dict[str, list[Message]] = {}
        self._first: dict[str, int] = {}
        self.seen = 0

    def take(self, messages: Sequence[Message]) -> None:
        """Looks at messages, the oldest first. Those looked at before change nothing."""
        for message in sorted(messages, key=lambda each: each.number):
            if message.number <= self.seen:
                continue
            if self._execution.state.pause is not None and not self._execution.code.begun:
                return  # the message before this one showed that code and log disagree: the run waits, and so do these
            self.seen = message.number
            if self._execution.ended:
                continue
            first = self._first.setdefault(message.dedupe, message.number)
            if message.number in self._execution.state.consumed:
                continue
            if first != message.number:
                self._refuse(message, f"a twin of message {first}")
            else:
                self._look_at(message)

    def controls(self, messages: Sequence[Message]) -> bool:
        """Whether a paused run has to look at one of these."""
        return any(map(self._controls, messages))

    def _controls(self, message: Message) -> bool:
        """Not among these: a resume for the sake of a version that was tried since, and does not fit."""
        state = self._execution.state
        if message.number in state.consumed:
            return False
        if message.kind == "jobs":
            return state.pause is not None and state.pause.reason == "jobs"
        if message.kind not in CONTROL:
            return False
        if message.kind != "resume" or state.pause is None or not state.pause.misfits:
            return True
        try:
            version = codec.decode(message.body, Reason, "a resume request").version
        except BadInput:
            return True  # looked at, and refused
        return version is None or version == state.version or version not in state.pause.misfits

    def take_controls(self, messages: Sequence[Message]) -> None:
        """Before the replay of a paused run: reads the messages that control it, until one ends the pause."""
        for message in sorted(messages, key=lambda each: each.number):
            if self._controls(message):
                self._look_at(message)
            if self._execution.state.pause is None:
                return

    def mark_seen(self, messages: Sequence[Message]) -> None:
        """Notes that these are there, without looking at any."""
        self.seen = max([self.seen, *(message.number for message in messages)])

    def _look_at(self, message: Message) -> None:
        try:
            match message.kind:
                case "signal":
                    self._signal(message, codec.decode(message.body, Signal, "a signal"))
                case "answer":
                    self._answer(message, codec.decode(message.body, AnswerMessage, "an answer"))
                case "child_finished":
                    self._child_finished(message, codec.decode(message.body, ChildEnd, "the end of a child"))
                case "pause":
                    self._pause(message, codec.decode(message.body, Reason, "a pause request"))
                case "resume":
                    self._resume(message, codec.decode(message.body, Reason, "a resume request"))
                case "jobs":
                    self._jobs(message, codec.decode(message.body, JobsMessage, "a message about jobs"))
                case "cluster":
                    self._execution.record(cluster_event(message.body, message.number, message.by))
                case "cancel":
                    self._cancel(message, codec.decode(message.body, Reason, "a cancel request"))
                case _:
                    self._refuse(message, f"messages of kind {message.kind!r} are unknown to this version of Buoy")
        except BadInput as error:
            self._refuse(message, str(error))

    # signals

    def _signal(self, message: Message, signal: Signal) -> None:
        self._signals.setdefault(signal.name, deque()).append((message.number, signal.payload))
        for leaf in self._execution.state.open.values():
            if leaf.kind == "signal" and leaf.name == signal.name:
                self.give_signal(leaf.id, signal.name)
                return

    def give_signal(self, leaf: LeafId, name: str) -> bool:
        """Hands the oldest unread signal of that name to a leaf that waits for it."""
        unread = self._signals.get(name)
        if not unread:
            return False
        number, payload = unread.popleft()
        body = e.SignalReceived(leaf=leaf, message=number, payload=payload)
        self._execution.settle(body, codec.decode(payload, Any, "a payload"))
        return True

    # answers

    def _answer(self, message: Message, answer: AnswerMessage) -> None:
        leaf = self._question(answer.question_id)
        if leaf is None and self._may_be_asked(answer.question_id):
            # A recovery hid the question and its answer: the code will ask again, under the same id.
            self._kept.setdefault(answer.question_id, []).append(message)
            return
        if leaf is None:
            self._refuse(
                message, f"question {answer.question_id} is not open: it was answered, given up or never asked"
            )
            return
        assert leaf.question is not None
        value = check_answer(leaf.question, codec.decode(answer.answer, Any, "the answer"))
        stored = codec.encode(value, "the answer")
        body = e.InteractionResponse(
            leaf=leaf.id, question_id=answer.question_id, answer=stored, message=message.number, by=message.by
        )
        self._execution.settle(body, value)

    def _may_be_asked(self, question_id: str) -> bool:
        """Whether the id is one that this run has not used on its lineage, but would use for its next asking."""
        state = self._execution.state
        identity, _, _ = question_id.removeprefix(f"{state.run_id}/").rpartition("/")
        leaf = state.names.now(LeafId(identity))
        return leaf not in state.leaves and question_id == state.key(leaf)

    def give_kept(self, wanted: str) -> None:
        """The question is asked, or the child is started (again): what was there already counts, the oldest first."""
        for message in self._kept.pop(wanted, ()):
            if not self._execution.ended:
                self._look_at(message)

    def _question(self, question_id: str) -> Leaf | None:
        for leaf in self._execution.state.open.values():
            if leaf.question_id == question_id:
                return leaf
        return None

    # children

    def _child_finished(self, message: Message, end: ChildEnd) -> None:
        execution = self._execution
        leaf = self._child(end)
        if leaf is None and self._may_be_started(end):
            # A recovery hid the child and its end: the code will start it again, under the same id.
            self._kept.setdefault(end.child, []).append(message)
            return
        if leaf is None or end.child != execution.state.child_id(leaf.id):
            self._refuse(message, f"the run no longer waits for child {end.child}")
            return
        finished = e.ChildFinished(
            leaf=leaf.id,
            child=end.child,
            status=end.status,
            result=end.result,
            error=end.error,
            message=message.number,
        )
        execution.settle(finished, child_outcome(finished, execution.leaves.returns_of(leaf.id), execution.workflow.fn))

    def _may_be_started(self, end: ChildEnd) -> bool:
        """Whether the child is one that this run has not started on its lineage, but would start for that leaf."""
        state = self._execution.state
        leaf = state.names.now(end.leaf)
        return leaf not in state.leaves and end.child == state.child_id(leaf)

    def _child(self, end: ChildEnd) -> Leaf | None:
        """The leaf that waits for it. The child knows it by the name that it had when the child was started."""
        waits = self._execution.state.open
        found = waits.get(end.leaf)
        if found is not None and found.child is not None and found.child.child == end.child:
            return found
        return next((leaf for leaf in waits.values() if leaf.child is not None and leaf.child.child == end.child), None)

    # jobs

    def _jobs(self, message: Message, body: JobsMessage) -> None:
        """A run that rests because of failed jobs continues; its code looks at the message after its replay."""
        execution = self._execution
        if execution.state.pause is not None and execution.state.pause.reason == "jobs":
            execution.unpause(e.Resumed(by=message.by))
        if execution.code.begun:
            execution.code.receive(message.number, body, message.by)

    # control

    def _pause(self, message: Message, body: Reason) -> None:
        if self._execution.state.pause is not None:
            self._refuse(message, "the run is paused already")
        else:
            ends_at = None
            if body.hold_s is not None:
                ends_at = self._execution.ledger.now() + min(body.hold_s, REWIND_HOLD_MAX_S)
            paused = e.Paused(
                reason="user" if ends_at is None else "rewind",
                detail=body.reason,
                message=message.number,
                by=message.by,
                expires_at=ends_at,
            )
            self._execution.record(paused)
            self._execution.call_back()
            if ends_at is not None:
                over = partial(self._execution.turn, self._hold_over, message.number)
                self._execution.host.timers.set(self._execution.ledger.here(ends_at), over)

    def _hold_over(self, message: int) -> None:
        """A pause ends by itself also while a step executes here. A run that was given back is woken by its task."""
        execution = self._execution
        pause = execution.state.pause
        if pause is not None and pause.message == message and execution.code.begun and not execution.stopping:
            execution.unpause(e.Resumed(by="the end of its pause"))

    def _resume(self, message: Message, body: Reason) -> None:
        pause = self._execution.state.pause
        if pause is None:
            self._refuse(message, "the run is not paused")
        elif body.takes_back is not None and pause.message != body.takes_back:
            self._refuse(message, f"the pause that message {body.takes_back} asked for is over")
        else:
            self._execution.unpause(e.Resumed(message=message.number, by=message.by, version=body.version))

    def _cancel(self, message: Message, body: Reason) -> None:
        if self._execution.state.cancel is not None:
            self._refuse(message, "the run is being cancelled already")
            return
        if self._execution.state.pause is not None:
            self._execution.unpause(e.Resumed(by=message.by))
        if self._execution.ended:
            return  # what was kept from its code while it was paused brought it to its end
        self._execution.cancel(e.CancelRequested(message=message.number, reason=body.reason, by=message.by))

    def _refuse(self, message: Message, reason: str) -> None:
        self._execution.record(e.MessageRefused(message=message.number, reason=reason))
