"""Clients that others wrote: a fuzzer over the OpenAPI document, a stock SSE client, an application that mounts it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import httpx_sse
import pytest
import schemathesis
from fastapi import FastAPI
from hypothesis import HealthCheck, Phase, settings

import buoy
from buoy.web.openapi import document
from buoy.web.routes import API
from tests.patience import PATIENCE_S

from .conformance import check_answer
from .live_server import TOKEN
from .served import Served, waiting

HEADERS = {"Authorization": f"Bearer {TOKEN}"}


def _schema() -> Any:
    told = document("0")
    # A stream does not end by itself.
    told["paths"] = {path: each for path, each in told["paths"].items() if not path.endswith("/stream")}
    return schemathesis.openapi.from_dict(told)


SCHEMA = _schema()


@pytest.fixture(scope="module")
def fuzzed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    served = Served(tmp_path_factory.mktemp("fuzz"))
    asyncio.run(_planted(served))
    yield served
    served.server.stop()


async def _planted(served: Served) -> None:
    """A run that asks, so that calls about a run meet one."""
    async with served.worker() as app:
        await waiting(served, app, "planted")


# Each call of the API, writes included, with a few made-up requests; CI of a night may take more.
@SCHEMA.parametrize()
@settings(
    max_examples=3, deadline=None, derandomize=True, database=None, phases=[Phase.generate],
    suppress_health_check=list(HealthCheck),
)  # fmt: skip
def test_no_request_that_a_fuzzer_makes_breaks_the_server(case: schemathesis.Case, fuzzed: Served) -> None:
    for run_id in (None, "planted"):
        if run_id is not None:
            if "run_id" not in (case.path_parameters or {}):
                return
            case.path_parameters["run_id"] = run_id
        _answered(case, fuzzed)


def _answered(case: schemathesis.Case, fuzzed: Served) -> None:
    answer = case.call(base_url=fuzzed.server.url, headers=HEADERS, timeout=PATIENCE_S)
    assert answer.status_code < 500, answer.text
    responses = case.operation.definition.raw["responses"]
    assert str(answer.status_code) in responses or answer.status_code in (404, 405), (answer.status_code, answer.text)
    if answer.status_code >= 400:
        assert answer.json()["code"] and answer.headers["content-type"][0] == "application/problem+json"
    check_answer(case.method, case.formatted_path.removeprefix(API), answer.status_code, answer.json())


async def test_a_stock_client_of_server_sent_events_reads_a_stream(served: Served) -> None:
    async with served.worker() as app, httpx.AsyncClient(timeout=PATIENCE_S, headers=HEADERS) as client:
        await waiting(served, app)
        url = f"{served.server.url}{API}/runs/r1/stream"
        async with httpx_sse.aconnect_sse(client, "GET", url) as source:
            names = []
            async for event in source.aiter_sse():
                names.append(event.event)
                if event.event == "workflow_created":
                    assert (event.id, event.retry) == ("1", None) and event.json()["seq"] == 1
                if len(names) == 4:
                    break
        assert names[:2] == ["health", "workflow_created"]


async def test_an_application_of_another_framework_mounts_the_server(tmp_path: Path) -> None:
    app = FastAPI()
    app.mount("/jobs", buoy.asgi(f"sqlite:///{tmp_path}/runs.db", token=TOKEN, sweeps=False))
    transport = httpx.ASGITransport(app)
    async with httpx.AsyncClient(transport=transport, base_url="http://x", headers=HEADERS) as client:
        assert (await client.get(f"/jobs{API}/runs")).json()["runs"] == []
        assert (await client.get("/jobs/healthz")).json() == {"status": "ok"}
        assert (await client.get(f"/jobs{API}/openapi.json")).json()["servers"] == [{"url": "/jobs"}]
        assert (await client.get(f"/jobs{API}/runs", headers={"Authorization": ""})).status_code == 401
