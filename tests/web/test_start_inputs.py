"""Starts over HTTP whose input does not fit the workflow: refused, or failed by the worker; the parameter is named."""

from __future__ import annotations

from typing import Any

import pytest

import buoy
from tests.patience import until

from .served import Served, is_in


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({}, "parameter 'n' is missing"),
        ({"n": "four"}, "parameter 'n' must be int, got str"),
        ({"n": 4, "m": 5}, "unknown parameter 'm'"),
    ],
)
async def test_a_start_is_refused_if_live_workers_tell_other_parameters(
    served: Served, given: dict[str, Any], text: str
) -> None:
    async with served.worker() as app:
        version = app.registry.need("flow").version
        for order in ({}, {"version": version}):
            code, told = await served.ask("POST", "/runs", {"workflow": "flow", "input": given, "run_id": "r", **order})
            assert (code, told["code"]) == (422, "bad_input")
            assert text in told["detail"]
        assert (await served.ask("GET", "/runs/r"))[0] == 404
        schedule = {"start": {"workflow": "flow", "input": given}, "every_s": 60}
        code, told = await served.ask("PUT", "/schedules/s", schedule)
        assert code == 422 and text in told["detail"]


async def test_an_input_that_only_the_code_can_judge_pauses_its_run(served: Served) -> None:
    async with served.worker():
        order = {"workflow": "story", "input": {"words": ["good", 5]}, "run_id": "r"}
        assert (await served.ask("POST", "/runs", order))[0] == 200
        await until(lambda: is_in(served, "r", "paused"), "the run to be paused")
        _, why = await served.ask("GET", "/runs/r/why")
        assert "its input does not fit the parameters of its code" in why["headline"]
        assert "invalid arguments for workflow story: Expected `str`, got `int` - at `$.words[" in why["wrong"][0]


async def test_a_start_without_a_live_worker_is_checked_by_the_next_one(served: Served) -> None:
    order = {"workflow": "flow", "input": {"n": "four"}, "run_id": "r", "version": "not-known-yet"}
    code, told = await served.ask("POST", "/runs", order)
    assert code == 200 and told["missing"] is not None
    async with served.worker():
        await until(lambda: is_in(served, "r", "paused"), "the run to wait for its version")
        _, shown = await served.ask("GET", "/runs/r")
        assert shown["document"]["pause"]["reason"] == "version"


async def test_a_client_with_the_code_refuses_the_same_input(served: Served) -> None:
    async with served.worker() as app:
        with pytest.raises(buoy.BadInput, match=r"`\$\.n`"):
            await app.start(app.registry.need("flow"), "four")
