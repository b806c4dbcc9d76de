"""What a process that was not there finds in the store can be wrong, and each wrong is noticed."""

from __future__ import annotations

import msgspec
import pytest
from simulator.aftermath import Aftermath, disagreeing, still_living, wrong_counts, wrong_lists

from buoy.core.ids import RunId
from buoy.core.log.document import Document
from buoy.core.log.lifecycle import Status
from buoy.ports.maintenance import IndexTrouble
from buoy.ports.records import ENDED, MORE


def _document(name: str) -> Document:
    return Document(RunId(name), "w", Status.COMPLETED, 3, 100.0, 101.0)


ONE, OTHER = _document("run-1"), _document("run-2")
BOTH = {"run-1": ONE, "run-2": OTHER}


def _lists(*listed: Document) -> Aftermath:
    return Aftermath(documents=BOTH, lists={"status completed": list(listed)})


def test_a_list_that_has_each_run_once_is_right() -> None:
    assert list(wrong_lists(_lists(OTHER, ONE))) == []


def test_a_list_may_name_a_purged_run_whose_entry_arrived_after_the_purge() -> None:
    late = _document("run-3")
    assert list(wrong_lists(Aftermath(documents=BOTH, lists={"all": [OTHER, ONE, late]}, late={"run-3": late}))) == []
    assert len(list(wrong_lists(Aftermath(documents=BOTH, lists={"all": [OTHER, ONE, late]})))) == 1


@pytest.mark.parametrize(
    "wrong",
    [
        _lists(ONE),
        _lists(ONE, OTHER, ONE),
        _lists(ONE, OTHER, _document("run-3")),
        _lists(ONE, msgspec.structs.replace(OTHER, head_seq=2)),
    ],
    ids=["lacks one", "one twice", "one too many", "one is stale"],
)
def test_a_wrong_list_is_noticed(wrong: Aftermath) -> None:
    assert len(list(wrong_lists(wrong))) == 1


WAITS = msgspec.structs.replace(_document("run-3"), status=Status.WAITING)


def _counts(**counts: int) -> Aftermath:
    return Aftermath(documents={**BOTH, "run-3": WAITS}, counts=counts)


@pytest.mark.parametrize(
    "right",
    [
        _counts(completed=2, waiting=1),
        _counts(completed=1, waiting=1, **{ENDED: 1}),
        _counts(completed=1, waiting=1, **{MORE: 0}),
    ],
    ids=["each by its status", "of one only that it ended", "there are more"],
)
def test_a_count_that_has_each_run_once_is_right(right: Aftermath) -> None:
    assert list(wrong_counts(right)) == []


@pytest.mark.parametrize(
    "wrong",
    [
        _counts(completed=3, waiting=1),
        _counts(completed=1, waiting=1),
        _counts(completed=2, waiting=1, **{ENDED: 1}),
        _counts(completed=2, **{ENDED: 1}),
        _counts(completed=2, **{MORE: 0}),
    ],
    ids=["one twice", "lacks one", "one twice, untold", "one that waits as ended", "one that waits is left out"],
)
def test_a_wrong_count_is_noticed(wrong: Aftermath) -> None:
    assert len(list(wrong_counts(wrong))) == 1


def test_a_worker_that_stopped_in_order_is_not_among_the_living() -> None:
    found = Aftermath(living=frozenset({"worker-1"}))
    assert list(still_living(["worker-2"], found)) == []
    assert len(list(still_living(["worker-1"], found))) == 1


def test_an_index_that_disagrees_is_noticed_unless_its_run_was_spoiled_on_purpose() -> None:
    found = Aftermath(troubles=(IndexTrouble("missing entry", "run-1 has not its entry", "k", RunId("run-1")),))
    assert len(list(disagreeing({}, found))) == 1
    assert list(disagreeing({"run-1": 3}, found)) == []
