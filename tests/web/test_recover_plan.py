"""Recovery over HTTP: the plan that was shown is the one that is applied, and no other."""

from __future__ import annotations

import asyncio

import pytest

from .served import Served
from .test_streams import killed_worker


@pytest.fixture
def left(served: Served) -> Served:
    """A server with the run `left`, whose worker was killed in a step."""
    killed_worker(served.path.parent)
    return served


async def test_a_plan_that_was_shown_is_applied_by_its_id(left: Served) -> None:
    code, shown = await left.ask("POST", "/runs/left/recover", {"dry_run": True})
    assert code == 200 and shown["needed"] and shown["dry_run"] is True
    before = (await left.ask("GET", "/runs/left"))[1]["document"]["head_seq"]
    code, told = await left.ask("POST", "/runs/left/recover", {"plan": "no-such-plan"})
    assert (code, told["code"]) == (409, "wrong_state")
    assert (await left.ask("GET", "/runs/left"))[1]["document"]["head_seq"] == before
    code, done = await left.ask("POST", "/runs/left/recover", {"plan": shown["plan"]["id"]})
    assert code == 200 and done["action"] == shown["action"] and done["new_branch_id"] == shown["plan"]["branch"]
    _, audit = await left.ask("GET", "/runs/left/recoveries")
    assert [each["actor"] for each in audit["recoveries"]] == ["tester"]


async def test_a_plan_that_is_no_longer_true_is_refused_and_changes_nothing(left: Served) -> None:
    _, shown = await left.ask("POST", "/runs/left/recover", {"dry_run": True})
    applied = [left.ask("POST", "/runs/left/recover", {"plan": shown["plan"]["id"]}) for _ in range(4)]
    codes = sorted(code for code, _ in await asyncio.gather(*applied))
    assert codes[0] == 200, "one of them was first"
    after = (await left.ask("GET", "/runs/left"))[1]["document"]["head_seq"]
    code, told = await left.ask("POST", "/runs/left/recover", {"plan": shown["plan"]["id"]})
    assert (code, told["code"]) == (409, "wrong_state"), told
    assert (await left.ask("GET", "/runs/left"))[1]["document"]["head_seq"] == after
    _, audit = await left.ask("GET", "/runs/left/recoveries")
    assert len(audit["recoveries"]) == 1
