"""A case: the facts about one run, read once, as the parts of a diagnosis look at them.

Invariant: what the log says and what the stored document says are kept apart, since the question is whether they agree.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from buoy.core.diagnosis.facts import Facts
from buoy.core.diagnosis.stable_points import pending_questions
from buoy.core.log import events as e
from buoy.core.log.document import Document, document
from buoy.core.log.lifecycle import Status
from buoy.core.log.lineage import visible
from buoy.core.log.renames import named_now
from buoy.core.log.state import State, fold


class Case(msgspec.Struct, frozen=True):
    """One run under diagnosis. Without a log, `state` and `folded` are None and only the document is known."""

    facts: Facts
    log: Sequence[e.Event] = ()
    lineage: Sequence[e.Event] = ()
    state: State | None = None
    folded: Document | None = None

    @property
    def stored(self) -> Document:
        """The document as the store has it."""
        return self.facts.stored or self.facts.document

    @property
    def status(self) -> Status:
        """What the log says, else what the document says."""
        return self.facts.document.status if self.folded is None else self.folded.status

    @property
    def claims_current(self) -> bool:
        """Whether the stored document speaks for this log: it is neither behind it nor ahead of it."""
        stored = self.facts.stored
        return stored is not None and (self.facts.foreign or stored.head_seq == len(self.log))

    @property
    def ahead(self) -> bool:
        """Whether the stored document names events that the log does not have."""
        stored = self.facts.stored
        return self.folded is not None and stored is not None and stored.head_seq > len(self.log)

    @property
    def judged(self) -> bool:
        """True if document and log may be compared: no live owner is about to write either."""
        return self.folded is not None and self.claims_current and not self.facts.live_owner

    def questions(self) -> list[e.Event]:
        return pending_questions(self.lineage)

    def recovered_since(self, code: str) -> bool:
        """Whether a recovery for that code is the last thing that happened to the run's leaves."""
        for event in reversed(self.log):
            if isinstance(event.body, e.WorkflowRecovered):
                return event.body.finding in (code, "NS")
            if not e.is_run_level(event.body) or isinstance(event.body, e.JumpRequested):
                return False
        return False


def open_case(facts: Facts, state: State | None = None) -> Case:
    """Reads the log of the facts, if they have one. Raises `CorruptLog` if its branches have no sound order.

    `state`: that log as the caller has folded it. A long log is folded once in each pass of a recovery.
    """
    if facts.log is None:
        return Case(facts)
    log = named_now(facts.log)
    lineage = visible(log)
    if state is None or log is not facts.log:
        # The rules read the log by today's names, and so must its state.
        state = fold(facts.document.run_id, log)
    if state.created is None or state.status is None:
        return Case(facts, log, lineage, state)
    return Case(facts, log, lineage, state, document(state))
