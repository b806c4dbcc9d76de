"""What must be judged at the moment itself: whether a body may run now."""

from __future__ import annotations

import msgspec
import pytest
from simulator.faults import Gate
from simulator.reading import old_name, pause_of
from simulator.witness import Acknowledged, BodyEvent, Holders, Witness, is_suspect, still_ended

from buoy.core.ids import BranchId, LeafId, RunId
from buoy.core.log import events as e
from buoy.ports.host import Clock
from buoy.ports.records import Message
from buoy.ports.store import Store

LEAF = LeafId("work#1")


class _Shelf:
    """A storage that has just this log."""

    def __init__(self, *bodies: e.Body) -> None:
        self._log = [e.Event(number, 0.0, body) for number, body in enumerate(bodies, 1)]

    def open(self, gate: Gate, clock: Clock) -> Store:
        raise NotImplementedError

    def log(self, run_id: RunId, after: int = 0) -> list[e.Event]:
        return self._log[after:]

    def inbox(self, run_id: RunId) -> list[Message]:
        return []

    def holds(self, run_id: RunId, first_seq: int, nonce: str | None) -> bool:
        return any(event.seq == first_seq and event.nonce == nonce for event in self._log)

    def damage(self, run_id: RunId, luck: float) -> str | None:
        return None

    def erase(self, run_id: RunId, first_seq: int | None = None) -> None: ...

    def falsify(self, run_id: RunId, first_seq: int) -> None: ...

    def close(self) -> None: ...


CREATED = e.WorkflowCreated(workflow="w", input=msgspec.Raw(b"{}"))
STARTED = e.StepStarted(leaf=LEAF, name="work")


def _start(process: str = "w1", attempt: int = 1, *, gone: bool = False) -> BodyEvent:
    return BodyEvent(1.0, "start", "run-1", LEAF, attempt, "key", process, gone)


def _rules(witness: Witness) -> list[str]:
    return [violation.rule for violation in witness.violations]


def test_a_body_after_its_durable_start_is_right() -> None:
    witness = Witness(_Shelf(CREATED, STARTED))
    witness.body_started(_start(), {"w1"})
    assert _rules(witness) == []


def test_a_body_before_its_durable_start_is_noticed() -> None:
    witness = Witness(_Shelf(CREATED))
    witness.body_started(_start(), {"w1"})
    assert _rules(witness) == ["effect before commit"]


def test_a_body_of_an_attempt_that_is_not_durable_is_noticed() -> None:
    witness = Witness(_Shelf(CREATED, STARTED))
    witness.body_started(_start(attempt=2), {"w1"})
    assert _rules(witness) == ["effect before commit"]


def test_a_body_after_its_durable_end_is_noticed() -> None:
    witness = Witness(_Shelf(CREATED, STARTED, e.StepCompleted(leaf=LEAF)))
    witness.body_started(_start(), {"w1"})
    assert _rules(witness) == ["executed again"]


def test_a_body_that_was_given_up_is_noticed_unless_its_own_process_cannot_know_it_yet() -> None:
    shelf = _Shelf(CREATED, STARTED, e.LeafCancelled(leaf=LEAF))
    shelf._log = [msgspec.structs.replace(event, nonce=f"c{event.seq}") for event in shelf._log]
    witness = Witness(shelf)
    witness.writers["c3"] = "w1"
    witness.body_started(_start("w1"), {"w1"})
    assert _rules(witness) == []
    witness.commits.append(Acknowledged("run-1", "c3", 3, 3, "w1"))
    witness.body_started(_start("w1"), set())
    assert _rules(witness) == ["executed again"]


def test_a_body_in_a_process_that_was_declared_gone_cannot_be_held_back() -> None:
    witness = Witness(_Shelf(CREATED, STARTED, e.StepCompleted(leaf=LEAF)))
    witness.body_started(_start(gone=True), set())
    assert _rules(witness) == []


def test_a_body_of_a_leaf_that_was_called_back_is_right_and_counted() -> None:
    back = e.BranchCreated(branch=BranchId(1), parent=BranchId(0), cutoff_seq=1, dropped=(LEAF,), cause="jump")
    shelf = _Shelf(CREATED, STARTED, e.StepCompleted(leaf=LEAF), back)
    shelf._log.append(e.Event(5, 0.0, STARTED, branch=BranchId(1)))
    witness = Witness(shelf)
    witness.body_started(_start(), {"w1"})
    assert _rules(witness) == []
    assert witness.bodies[0].redone == 1


def test_a_body_of_a_leaf_that_a_branch_keeps_is_noticed() -> None:
    """Whatever the engine believes to see: the witness counts for itself."""
    done = (CREATED, STARTED, e.StepCompleted(leaf=LEAF))
    kept = e.BranchCreated(branch=BranchId(1), parent=BranchId(0), cutoff_seq=1, kept=(LEAF,), cause="jump")
    within = e.BranchCreated(branch=BranchId(1), parent=BranchId(0), cutoff_seq=3, cause="recovery")
    for branch in (kept, within):
        log = _Shelf(*done, branch)._log
        ended = still_ended(log, _start())
        assert ended is not None and ended.seq == 3
    hidden = e.BranchCreated(branch=BranchId(2), parent=BranchId(1), cutoff_seq=1, cause="recovery")
    assert still_ended(_Shelf(*done, within, hidden)._log, _start()) is None


def test_a_leaf_whose_effect_was_undone_may_run_again_on_a_new_branch() -> None:
    undone = (e.CompensationStarted(leaf=LEAF), e.CompensationCompleted(leaf=LEAF))
    branch = e.BranchCreated(branch=BranchId(1), parent=BranchId(0), cutoff_seq=9, cause="retry")
    log = _Shelf(CREATED, STARTED, e.StepCompleted(leaf=LEAF), *undone)._log
    assert still_ended(log, _start()) is not None
    assert still_ended([*log, e.Event(6, 0.0, branch)], _start()) is None


def test_a_body_under_a_new_name_is_the_same_effect() -> None:
    assert (old_name("1/labour#2"), old_name("labour#1"), old_name("work#1")) == ("1/work#2", "work#1", "work#1")
    assert old_name("labourer#1") == "labourer#1"
    renamed = e.VersionBound(version="release-4", renamed={"work": "labour"})
    witness = Witness(_Shelf(CREATED, STARTED, e.StepCompleted(leaf=LEAF), renamed))
    witness.body_started(msgspec.structs.replace(_start(), leaf="labour#1"), {"w1"})
    assert _rules(witness) == ["executed again"]


def test_a_body_of_a_paused_run_is_noticed() -> None:
    witness = Witness(_Shelf(CREATED, STARTED, e.Paused(reason="user")))
    witness.body_started(_start(), {"w1"})
    assert _rules(witness) == ["a paused run starts nothing"]


def test_a_branch_does_not_end_a_pause() -> None:
    back = e.BranchCreated(branch=BranchId(1), parent=BranchId(0), cutoff_seq=1, dropped=(LEAF,), cause="jump")
    log = [e.Event(n, 0.0, body) for n, body in enumerate((CREATED, e.Paused(reason="user"), back), 1)]
    assert pause_of(log) == log[1]
    assert pause_of([*log, e.Event(4, 0.0, e.Resumed())]) is None


def test_a_commit_that_is_called_done_and_is_not_there_is_noticed() -> None:
    witness = Witness(_Shelf(CREATED))
    witness.committed(Acknowledged("run-1", None, 1, 1, "w1"))
    assert _rules(witness) == []
    witness.committed(Acknowledged("run-1", "c2", 2, 2, "w1"))
    assert _rules(witness) == ["acknowledged before it was durable"]


def test_a_commit_whose_answer_came_after_its_run_was_purged_was_there() -> None:
    witness = Witness(_Shelf())
    buried = [e.Event(1, 0.0, CREATED, nonce="c1"), e.Event(2, 0.0, e.Paused(reason="user"), nonce="c2")]
    witness.committed(Acknowledged("run-1", "c2", 2, 2, "w1"), buried=buried)
    assert _rules(witness) == []
    witness.committed(Acknowledged("run-1", "c3", 2, 2, "w1"), buried=buried)
    assert _rules(witness) == ["acknowledged before it was durable"]


def test_a_run_that_is_given_back_while_it_executes_is_noticed() -> None:
    witness = Witness(_Shelf(CREATED, STARTED))
    witness.body_started(_start(), {"w1"})
    witness.committed(Acknowledged("run-1", None, 1, 1, "w2"), gives_back=True)
    assert _rules(witness) == []
    witness.committed(Acknowledged("run-1", None, 1, 1, "w1"), gives_back=True)
    assert _rules(witness) == ["what executes is not given back"]


def test_a_body_in_two_living_processes_at_once_is_noticed() -> None:
    witness = Witness(_Shelf(CREATED, STARTED))
    witness.body_started(_start("w1"), {"w1", "w2"})
    witness.body_started(_start("w2"), {"w1", "w2"})
    assert _rules(witness) == ["executed twice at once"]


def test_a_body_after_the_death_of_its_first_process_is_right() -> None:
    witness = Witness(_Shelf(CREATED, STARTED))
    witness.body_started(_start("w1"), {"w1", "w2"})
    witness.body_started(_start("w2"), {"w2"})
    assert _rules(witness) == []


def test_a_task_has_one_living_holder() -> None:
    holders = Holders()
    assert holders.takes("run-1", "w1", {"w1", "w2"}) is None
    assert holders.takes("run-1", "w1", {"w1", "w2"}) is None
    assert holders.takes("run-1", "w2", {"w1", "w2"}) == "w1"
    assert holders.takes("run-1", "w1", {"w1"}) is None
    with holders.moving("run-1"):
        assert holders.takes("run-1", "w2", {"w1", "w2"}) is None
        assert holders.takes("run-1", "w1", {"w1", "w2"}) is None, "the first may have lost it by that"
    now = holders.moves
    assert holders.takes("run-1", "w1", {"w1", "w2"}, now - 1) is None
    assert holders.takes("run-1", "w2", {"w1", "w2"}, now) is None, "the first asked before that, and may have lost it"
    assert holders.takes("run-1", "w1", {"w1", "w2"}, now) == "w2"
    holders.forget("w1")
    assert holders.takes("run-1", "w2", {"w1", "w2"}, now) is None


def test_a_late_answer_to_a_process_that_was_declared_dead_is_no_second_holder() -> None:
    """It froze after the store had claimed for it, and hears of that when others have its runs."""
    holders = Holders()
    asked = holders.moves
    with holders.moving("run-1"):
        pass
    alive = {"w2"}
    assert holders.takes("run-1", "w2", alive, holders.moves) is None
    assert holders.takes("run-1", "w1", alive, asked) is None
    assert holders.takes("run-1", "w1", alive, holders.moves) == "w2", "it asked after its death"


def _claimed(*, cause: str = "taken_over", solo: bool = False) -> e.Claimed:
    return e.Claimed(runner="w1", cause=cause, evidence={"solo": True} if solo else {"proof": "lock free"})


class _Shelves(_Shelf):
    """Two runs: one that is driven alone, and another one."""

    def __init__(self, *others: e.Body) -> None:
        super().__init__(CREATED, _claimed(solo=True), STARTED)
        self._other = [e.Event(number, 0.0, body) for number, body in enumerate((CREATED, *others, STARTED), 1)]

    def log(self, run_id: RunId, after: int = 0) -> list[e.Event]:
        return (self._log if run_id == "run-1" else self._other)[after:]


@pytest.mark.parametrize("order", [("run-1", "run-2"), ("run-2", "run-1")])
def test_a_suspect_that_executes_beside_another_run_is_noticed(order: tuple[str, str]) -> None:
    witness = Witness(_Shelves(_claimed(cause="woken")))
    for run_id in order:
        witness.body_started(msgspec.structs.replace(_start(), run_id=run_id), {"w1"})
    assert _rules(witness) == ["a suspect is driven alone"]


def test_a_suspect_may_execute_beside_what_is_started_here_or_elsewhere() -> None:
    witness = Witness(_Shelves(_claimed(cause="created")))
    for run_id in ("run-1", "run-2"):
        witness.body_started(msgspec.structs.replace(_start(), run_id=run_id), {"w1"})
    assert _rules(witness) == []
    witness = Witness(_Shelves(_claimed(cause="woken")))
    witness.body_started(_start("w1"), {"w1", "w2"})
    witness.body_started(msgspec.structs.replace(_start("w2"), run_id="run-2"), {"w1", "w2"})
    assert _rules(witness) == []


def test_a_run_is_suspect_until_it_gets_on() -> None:
    log = _Shelf(CREATED, _claimed(solo=True), STARTED)._log
    assert is_suspect(log)
    assert not is_suspect([*log, e.Event(4, 0.0, e.StepCompleted(leaf=LEAF))])
    assert not is_suspect([*log, e.Event(4, 0.0, _claimed())])
