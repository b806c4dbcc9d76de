"""The calls of the API that start runs and look after a store as a whole, through a real server."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from tests.patience import until

from .live_server import LiveServer
from .served import Served, is_in, waiting

CASES = Path(__file__).parents[1] / "cases"
START = {"workflow": "flow", "input": {"n": 4}}


async def test_a_run_is_started_once_by_its_id_and_once_by_its_key(served: Served) -> None:
    async with served.worker():
        code, first = await served.ask("POST", "/runs", {**START, "run_id": "mine"})
        assert (code, first["created"], first["run_id"]) == (200, True, "mine")
        code, again = await served.ask("POST", "/runs", {**START, "run_id": "mine"})
        assert (code, again["created"]) == (200, False)
        code, told = await served.ask("POST", "/runs", {**START, "input": {"n": 5}, "run_id": "mine"})
        assert (code, told["code"]) == (409, "wrong_state")
        made = [(await served.ask("POST", "/runs", {**START, "key": "order-7"}))[1] for _ in range(2)]
        assert made[0]["run_id"] == made[1]["run_id"] and [each["created"] for each in made] == [True, False]
        await until(lambda: is_in(served, "mine", "awaiting_input"), "the run to be driven")
        _, log = await served.ask("GET", "/runs/mine/events?limit=1")
        assert log["events"][0]["body"]["by"] == "tester"


async def test_ten_starts_with_one_key_at_once_make_one_run(served: Served) -> None:
    async with served.worker():
        asked = [served.ask("POST", "/runs", {**START, "key": "k"}) for _ in range(10)]
        made = await asyncio.gather(*asked)
    assert [code for code, _ in made] == [200] * 10
    assert len({each["run_id"] for _, each in made}) == 1 and sum(each["created"] for _, each in made) == 1


@pytest.mark.parametrize(
    ("order", "code", "name"),
    [
        ({"workflow": "nobody-knows"}, 404, "unknown_workflow"),
        ({**START, "run_id": "a", "key": "b"}, 422, "bad_input"),
        ({**START, "run_id": "../x"}, 422, "bad_input"),
        ({**START, "policy": "pray"}, 422, "bad_input"),
        ({"workflow": "spec:x", "version": "abc"}, 404, "unknown_workflow"),
        ({"input": {}}, 422, "bad_input"),
    ],
)
async def test_a_start_that_cannot_be_is_refused(served: Served, order: dict[str, Any], code: int, name: str) -> None:
    found, told = await served.ask("POST", "/runs", order)
    assert (found, told["code"]) == (code, name)


async def test_inbox_questions_runners_sweepers_and_definitions_are_shown(served: Served) -> None:
    async with served.worker() as app:
        await waiting(served, app)
        _, asked = await served.ask("GET", "/questions")
        assert [(each["run_id"], each["leaf"]["question"]["title"]) for each in asked["questions"]] == [
            ("r1", "Ship it?")
        ]
        await served.ask("POST", "/runs/r1/signal", {"name": "go", "payload": 1})
        await served.ask("POST", "/runs/r1/answer", {"answer": True})
        await until(lambda: is_in(served, "r1", "completed"), "the run to end")
        _, inbox = await served.ask("GET", "/runs/r1/inbox?limit=1")
        assert [(each["kind"], each["by"]) for each in inbox["messages"]] == [("signal", "tester")]
        _, rest = await served.ask("GET", f"/runs/r1/inbox?after={inbox['next']}")
        assert rest["next"] is None and rest["messages"][0]["read_by"] is not None
        _, runners = await served.ask("GET", "/runners")
        assert len(runners["living"]) == 1
        _, sweepers = await served.ask("GET", "/sweepers")
        assert {each["alive"] for each in sweepers["sweepers"]} <= {True}
        _, known = await served.ask("GET", "/definitions")
        assert "flow" in [each["name"] for each in known["workflows"]]
        code, told = await served.ask("GET", "/definitions/none")
        assert (code, told["code"]) == (404, "unknown_workflow")


async def test_a_schedule_is_added_paused_resumed_and_removed(served: Served) -> None:
    async with served.worker():
        body = {"start": START, "cron": "0 3 * * *", "zone": "Europe/Berlin"}
        code, made = await served.ask("PUT", "/schedules/nightly", body)
        assert (code, made["workflow"], made["by"]) == (200, "flow", "tester")
        assert (await served.ask("POST", "/schedules/nightly/pause", {}))[1]["paused_at"] is not None
        assert (await served.ask("POST", "/schedules/nightly/pause", {}))[0] == 409
        assert (await served.ask("POST", "/schedules/nightly/resume", {}))[0] == 200
        assert (await served.ask("DELETE", "/schedules/nightly"))[0] == 200
        assert (await served.ask("GET", "/schedules"))[1]["schedules"] == []
        for method, path in (("POST", "nightly/pause"), ("POST", "other/resume"), ("DELETE", "nightly")):
            code, told = await served.ask(method, f"/schedules/{path}", {} if method == "POST" else None)
            assert (code, told["code"]) == (404, "unknown_schedule")
        code, told = await served.ask("PUT", "/schedules/nightly", {"start": START, "cron": "never"})
        assert (code, told["code"]) == (422, "bad_input")


async def test_a_bundle_goes_from_one_server_to_another(served: Served, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    other = Served(tmp_path / "other")
    try:
        async with served.worker() as app:
            await waiting(served, app)
            code, bundle = await served.ask("GET", "/runs/r1/bundle")
            assert code == 200 and bundle["kind"] == "buoy-run"
        code, done = await other.ask("POST", "/bundles", bundle)
        assert (code, done["new"], done["held"]) == (200, True, True)
        assert (await other.ask("POST", "/bundles", bundle))[1]["new"] is False
        code, told = await other.ask("POST", "/bundles", {"kind": "something else"})
        assert (code, told["code"]) == (422, "bad_input")
    finally:
        other.server.stop()


async def test_the_doctor_reports_and_recoveries_are_audited(served: Served) -> None:
    async with served.worker() as app:
        await waiting(served, app)
    code, report = await served.ask("POST", "/doctor", {})
    assert code == 200 and report["runs"] == 1
    code, audit = await served.ask("GET", "/recoveries")
    assert code == 200 and audit["cursor"] is None
    assert (await served.ask("GET", "/runs/r1/recoveries"))[1]["recoveries"] == []
    assert (await served.ask("GET", "/runs?finding=H9"))[0] == 422
    code, told = await served.ask("GET", "/runs?status=failed,faild")
    assert code == 422 and "unknown status 'faild'; choose awaiting_input," in told["detail"]
    assert (await served.ask("GET", "/runs?finding=B2"))[1]["runs"] == []


async def test_a_bulk_action_does_what_its_preview_showed_and_no_more(served: Served) -> None:
    async with served.worker() as app:
        for number in range(5):
            await waiting(served, app, f"r{number}")
        wanted = {"action": "cancel", "runs": {"status": "awaiting_input"}, "reason": "enough"}
        _, shown = await served.ask("POST", "/bulk/preview", wanted)
        assert shown["count"] == 5
        # It moves after the preview, so that it is not what was shown any more.
        await served.ask("POST", "/runs/r3/answer", {"answer": True})
        await until(lambda: is_in(served, "r3", "waiting_signal"), "r3 to move")
        await waiting(served, app, "r9")
        part: dict[str, Any] = {"cursor": None}
        done, first = 0, True
        while first or part["cursor"] is not None:
            first = False
            order = {"token": shown["token"], "cursor": part["cursor"], "limit": 2}
            code, part = await served.ask("POST", "/bulk/apply", order)
            assert code == 200, part
            done += part["done"]
        assert done == 4
        for number in (0, 1, 2, 4):
            await until(lambda run=f"r{number}": is_in(served, run, "cancelled"), "the end")  # type: ignore[misc]
        assert await served.status_of("r3") == "waiting_signal" and await served.status_of("r9") == "awaiting_input"
        wanted = {"action": "cancel", "runs": {"workflow": "flow"}}
        _, shown = await served.ask("POST", "/bulk/preview", wanted)
        assert sorted(shown["sample"]) == ["r3", "r9"], "runs that have ended would refuse it"


async def test_a_bulk_action_continues_on_another_server_after_the_first_died(served: Served) -> None:
    async with served.worker() as app:
        for number in range(4):
            await waiting(served, app, f"r{number}")
        _, shown = await served.ask("POST", "/bulk/preview", {"action": "pause", "runs": {"workflow": "flow"}})
        _, part = await served.ask("POST", "/bulk/apply", {"token": shown["token"], "limit": 2})
        assert part["done"] == 2
        served.server.stop()
        served.server = LiveServer(served.opened)
        # The answer to the first part was lost: all is asked for again, and the rest is done.
        code, part = await served.ask("POST", "/bulk/apply", {"token": shown["token"], "limit": 100, "rate": 1_000})
        assert code == 200 and part["cursor"] is None
        for number in range(4):
            await until(lambda run=f"r{number}": is_in(served, run, "paused"), "the pause")  # type: ignore[misc]
            _, log = await served.ask("GET", f"/runs/r{number}/events")
            assert [each["body"]["type"] for each in log["events"]].count("paused") == 1
            assert "message_refused" not in [each["body"]["type"] for each in log["events"]]


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("preview", {"action": "cancel", "runs": {}}),
        ("preview", {"action": "destroy", "runs": {"status": "failed"}}),
        ("preview", {"action": "cancel", "runs": {"finding": "A1"}}),
        ("apply", {"token": "!!"}),
        ("apply", {"token": "AAAAAAAA"}),
        ("apply", {"token": "AAAAAAAA", "limit": 0}),
    ],
)
async def test_a_wrong_bulk_action_is_refused(served: Served, path: str, body: dict[str, Any]) -> None:
    code, told = await served.ask("POST", f"/bulk/{path}", body)
    assert (code, told["code"]) == (422, "bad_input")


async def test_a_resume_whose_recovery_fails_is_answered_with_the_error(served: Served) -> None:
    bundle = json.loads((CASES / "e2_version_gone_for_good" / "bundle.json").read_text())
    code, done = await served.ask("POST", "/bundles?as_found=true", bundle)
    assert code == 200
    code, told = await served.ask("POST", f"/runs/{done['run_id']}/resume", {})
    assert (code, told["code"]) == (500, "recovery_failed")
    assert "is not in this store" in told["detail"]
