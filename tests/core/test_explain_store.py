"""A store that takes no data, in words."""

from __future__ import annotations

import pytest

from buoy.core.diagnosis.facts import StoreFacts
from buoy.core.explain.explain import explain
from buoy.core.log.lifecycle import Status

from .test_explain import facts, text_of
from .test_health import LOCK_FREE, STEP, runner


def refused(cause: str) -> StoreFacts:
    return StoreFacts(cause=cause, place="/data", detail="No", free_bytes=0)


@pytest.mark.parametrize(
    ("cause", "words", "advice"),
    [
        ("full", "no space is left on its disk", "free some space"),
        ("quota", "the disk quota is used up", "quota"),
        ("read_only", "its disk is mounted read-only", "mount the disk for writing"),
        ("file_size", "a limit on the size of files", "ulimit"),
        ("no_replica", "its server waits for a synchronous replica", "start that replica"),
        ("standby", "its server only reads", "target_session_attrs=read-write"),
        ("a cause of a later version", "the system refuses", "what the system says"),
    ],
)
def test_each_cause_has_its_words_and_its_advice(cause: str, words: str, advice: str) -> None:
    told = explain(facts(Status.RUNNING, STEP, holder=runner(), store=refused(cause)))
    assert words in told.headline and any(words in line and "/data: No" in line for line in told.wrong)
    assert advice in told.you_can[0] and "When the step ends" not in text_of(told)


def test_a_reader_who_may_not_write_says_nothing_about_the_workers() -> None:
    told = explain(facts(Status.RUNNING, STEP, holder=runner(), store=refused("not_permitted")))
    assert told.wrong == () and told.headline == "r is running step pack (attempt 1)."
    assert "seen by a user who may not write: /data" in told.evidence


def test_a_run_that_ended_does_not_care_for_its_store() -> None:
    assert "written" not in text_of(explain(facts(Status.COMPLETED, store=refused("full"))))


def test_a_dead_worker_comes_first() -> None:
    told = explain(facts(Status.RUNNING, STEP, holder=runner(proof=LOCK_FREE), store=refused("full")))
    assert "is dead" in told.wrong[0] and "the store cannot be written" in told.wrong[1]
    assert told.next[0].startswith("Nothing until the store can be written again")
