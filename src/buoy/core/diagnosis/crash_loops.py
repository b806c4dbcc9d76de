"""Crash loops: how often a run has crashed the processes that drove it, from its log alone.

Invariants: only a takeover from a dead runner counts as a crash, and only if a leaf was executing. The loss of a
machine, an allocation or a drained runner does not count. Progress, and a person's `release`, reset the count. Progress
is a completed leaf that no earlier branch had completed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from buoy.core.diagnosis.findings import Finding
from buoy.core.ids import LeafId, RunId
from buoy.core.limits import POISON_CAP, SOLO_AFTER
from buoy.core.log import events as e
from buoy.core.log.renames import named_now
from buoy.core.log.state import fold
from buoy.core.log.transitions import compensation_leaf
from buoy.errors import CorruptLog

_BEGINS = (e.StepStarted, e.ModuleStarted)
_WAITS = (e.InteractionRequested, e.SignalWaited, e.TimerStarted, e.ChildStarted)
_COMPLETES = (
    e.StepCompleted,
    e.ModuleCompleted,
    e.InteractionResponse,
    e.SignalReceived,
    e.TimerFired,
    e.ChildFinished,
)
_ENDS = (*_COMPLETES, e.StepFailed, e.ModuleFailed, e.RetryScheduled, e.LeafCancelled)
_EXECUTES = ("step", "module", "compensation")
# Why a runner was lost that a run cannot be blamed for.
_BLAMELESS_PROOFS = frozenset({"the host was rebooted"})
_BLAMELESS_CAUSES = frozenset({"preempted", "node_fail", "timeout", "cancelled", "drain", "requeued", "rebooted"})


class Crashes(msgspec.Struct, frozen=True):
    """Crashes since the last progress. `leaf` was under way at the last one, `signature` says how the process ended."""

    in_a_row: int = 0
    solo: int = 0
    leaf: LeafId | None = None
    signature: str = ""
    # The event of the last takeover that counted.
    seq: int = 0

    @property
    def wants_solo(self) -> bool:
        """Whether it must be driven by a runner that holds nothing else."""
        return self.in_a_row >= SOLO_AFTER

    @property
    def poison(self) -> bool:
        return self.solo >= POISON_CAP


def crashes(log: Sequence[e.Event]) -> Crashes:
    """The crashes of a run, from its whole log."""
    return _Count(log).read()


def blameless(evidence: Mapping[str, str | int | float | bool | None]) -> bool:
    """Whether the runner was lost with its machine or on purpose, or the evidence says nothing of its end."""
    boot, boot_now = evidence.get("boot_id"), evidence.get("boot_id_now")
    return (
        evidence.get("proof") in _BLAMELESS_PROOFS
        or evidence.get("scheduler") is not None
        or evidence.get("orphan") is not None  # found without a task, or left by a runner that had stopped
        or evidence.get("drained") is True
        or str(evidence.get("cause")) in _BLAMELESS_CAUSES
        or (boot_now is not None and boot is not None and boot != boot_now)
    )


def signature(evidence: Mapping[str, str | int | float | bool | None]) -> str:
    """How the process ended, as far as the evidence shows."""
    for name in ("exit", "signal", "exit_code", "proof"):
        value = evidence.get(name)
        if value is not None:
            return str(value) if name in ("exit", "proof") else f"{name.replace('_', ' ')} {value}"
    return "its process ended"


def poison_finding(found: Crashes) -> Finding:
    """P1, for who has counted."""
    place = "its own code" if found.leaf is None else f"step {found.leaf}"
    return Finding(
        code="P1",
        trouble=True,
        reason=f"{place} ended the process that drove it {found.solo} times alone ({found.signature})",
        remedy="quarantine",
        evidence={
            "leaf": found.leaf,
            "signature": found.signature,
            "solo_crashes": found.solo,
            "crashes_in_a_row": found.in_a_row,
            "last_takeover_event": found.seq,
        },
    )


class _Count:
    """One reading of a log."""

    def __init__(self, log: Sequence[e.Event]) -> None:
        self._log = named_now(log)
        self._under_way: dict[LeafId, None] = {}
        self._waits: dict[LeafId, None] = {}
        # The last event is a claim: only the workflow's own code was running.
        self._only_claimed = False
        self._completed: set[LeafId] = set()
        self._solo = False
        self._quarantined = False
        self._found = Crashes()

    def read(self) -> Crashes:
        for place, event in enumerate(self._log):
            self._see(place, event)
        return self._found

    def _see(self, place: int, event: e.Event) -> None:
        before, self._only_claimed = self._only_claimed, False
        match event.body:
            case e.Claimed() as body:
                self._claimed(event, body, in_code=before and not self._waits)
            case e.Paused(reason=reason):
                self._quarantined = reason == "poison"
            case e.Resumed() if self._quarantined:
                self._quarantined = False
                self._forgive()
            case e.BranchCreated() as body:
                self._branched(place, body)
            case e.CompensationStarted(leaf=leaf):
                self._under_way[compensation_leaf(leaf)] = None
            case (
                e.CompensationRetryScheduled(leaf=leaf)
                | e.CompensationCompleted(leaf=leaf)
                | e.CompensationFailed(leaf=leaf)
            ):
                self._under_way.pop(compensation_leaf(leaf), None)
            case body if isinstance(body, _BEGINS):
                if not body.group:
                    self._under_way[body.leaf] = None
            case body if isinstance(body, _WAITS):
                self._waits[body.leaf] = None
            case body if isinstance(body, _ENDS):
                self._ended(body.leaf, completed=isinstance(body, _COMPLETES))
            case _:
                return

    def _ended(self, leaf: LeafId, *, completed: bool) -> None:
        self._under_way.pop(leaf, None)
        self._waits.pop(leaf, None)
        if completed and leaf not in self._completed:
            self._completed.add(leaf)
            self._forgive()

    def _forgive(self) -> None:
        """The count begins again. What made progress is no longer alone, so its next crash is not one alone."""
        self._found, self._solo = Crashes(), False

    def _branched(self, place: int, body: e.BranchCreated) -> None:
        if body.cause in ("jump", "retry"):
            self._forgive()
        try:
            shown = fold(RunId(""), self._log[: place + 1])
        except CorruptLog:
            self._under_way.clear()
            self._waits.clear()
            return
        self._waits = {leaf.id: None for leaf in shown.open.values() if leaf.kind not in (*_EXECUTES, "group")}
        self._under_way = {leaf.id: None for leaf in shown.open.values() if leaf.kind in _EXECUTES}

    def _claimed(self, event: e.Event, body: e.Claimed, *, in_code: bool) -> None:
        if body.cause in ("requested", "recovered"):
            return  # drives nothing
        crashed_alone, self._solo = self._solo, body.evidence.get("solo") is True
        self._only_claimed = True
        suspect = bool(self._under_way) or in_code
        if body.cause != "taken_over" or not suspect or blameless(body.evidence):
            return
        self._found = Crashes(
            in_a_row=self._found.in_a_row + 1,
            solo=self._found.solo + crashed_alone,
            leaf=next(reversed(self._under_way), None),
            signature=signature(body.evidence),
            seq=event.seq,
        )
