"""Metrics, structured logs, redaction and limits of a server."""

from __future__ import annotations

import http.client
import io
import json
import logging
import socket

import pytest

from buoy.core.log.takeovers import Takeover
from buoy.errors import BadInput
from buoy.operations.maintenance.figures import Figures, QueueFigures
from buoy.web import body as bodies
from buoy.web.limits import RateLimit, ServerLimits
from buoy.web.log_lines import JsonFormatter
from buoy.web.metrics import _StoreFigures
from buoy.web.redaction import HIDDEN, Redaction
from tests.patience import PATIENCE_S

from .live_server import TOKEN
from .served import Served, waiting


def fetch(served: Served, path: str, token: str = TOKEN, **headers: str) -> tuple[int, bytes, dict[str, str]]:
    connection = http.client.HTTPConnection("127.0.0.1", served.server.port, timeout=PATIENCE_S)
    try:
        connection.request("GET", path, headers={"Authorization": f"Bearer {token}", **headers})
        answer = connection.getresponse()
        return answer.status, answer.read(), dict(answer.headers)
    finally:
        connection.close()


async def test_metrics_tell_runs_queue_heartbeats_sweeps_commits_and_requests(served: Served) -> None:
    async with served.worker() as app:
        await waiting(served, app)
        await served.ask("GET", "/runs/r1")
        status, text, _ = fetch(served, "/metrics")
        lines = text.decode().splitlines()
        assert status == 200 and 'buoy_runs{status="awaiting_input"} 1.0' in lines and "buoy_store_up 1.0" in lines
        named = {line.split("{")[0].split(" ")[0] for line in lines if not line.startswith("#")}
        assert named >= {
            "buoy_queue_depth", "buoy_queue_oldest_seconds", "buoy_runner_heartbeat_age_seconds", "buoy_runners",
            "buoy_time_to_detect_seconds", "buoy_time_to_resume_seconds", "buoy_work_repeated_steps",
            "buoy_work_repeated_seconds", "buoy_http_requests_total", "buoy_commit_seconds_count", "buoy_streams_open",
        }  # fmt: skip
        assert any(line.startswith('buoy_http_requests_total{method="GET",route="/runs/{run_id}"') for line in lines)
        assert "r1" not in text.decode()
    assert fetch(served, "/metrics", token="wrong")[0] == 401


def test_the_time_to_resume_leaves_out_runs_that_waited_for_something_else() -> None:
    figures = Figures(
        runs={}, queue=QueueFigures(0, 0.0), runners=(), sweepers=(), detected_s=(), recoveries=0, claims_again=2,
        takeovers=(Takeover(3600.0, 0, 0.0), Takeover(7.0, 1, 2.0)), requests={},
    )  # fmt: skip
    told = _StoreFigures()
    told.figures = figures
    values = {each.name: each.samples[0].value for each in told.collect() if each.samples}
    assert values["buoy_time_to_resume_seconds"] == 7.0
    assert (values["buoy_work_repeated_steps"], values["buoy_work_repeated_seconds"]) == (1.0, 2.0)


async def test_a_caller_over_its_rate_is_told_when_to_come_back(served: Served) -> None:
    served.server.application.guard._rates = RateLimit(
        ServerLimits(rate=0.5, burst=2), served.server.application._clock
    )
    codes = [(await served.ask("GET", "/counts"))[0] for _ in range(3)]
    assert codes == [200, 200, 429]
    status, text, headers = fetch(served, "/api/v1/counts")
    assert (status, json.loads(text)["code"]) == (429, "rate_limited") and int(headers["retry-after"]) >= 1
    # Guessers without a token have a bucket of their own.
    assert fetch(served, "/api/v1/counts", token="wrong")[0] == 401


async def test_large_headers_and_bodies_that_do_not_arrive_have_errors_of_their_own(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert json.loads(fetch(served, "/api/v1/counts", **{"X-Long": "x" * 40_000})[1])["code"] == "headers_too_large"
    monkeypatch.setattr(bodies.body_of, "__defaults__", (0.05,))
    with socket.create_connection(("127.0.0.1", served.server.port), timeout=PATIENCE_S) as slow:
        head = f"POST /api/v1/runs/r1/signal HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {TOKEN}\r\n"
        slow.sendall(head.encode() + b'Content-Length: 90\r\n\r\n{"na')
        assert b" 408 " in slow.recv(65536).split(b"\r\n")[0]


async def test_more_streams_than_allowed_are_refused(served: Served) -> None:
    async with served.worker() as app:
        await waiting(served, app)
        served.server.application._limits = ServerLimits(streams=0)
        status, text, _ = fetch(served, "/api/v1/runs/r1/stream")
        assert (status, json.loads(text)["code"]) == (503, "too_many_streams")
        served.server.application._limits = ServerLimits(streams_per_caller=0)
        assert json.loads(fetch(served, "/api/v1/stream")[1])["code"] == "too_many_streams"


def test_redaction_hides_the_values_of_keys_that_match_and_nothing_else() -> None:
    secret = Redaction(("*password*", "token"))
    found = json.loads(secret.apply(b'{"a": [{"DB_Password": {"x": 1}}], "token": "t", "tokens": 2, "b": "password"}'))
    assert found == {"a": [{"DB_Password": HIDDEN}], "token": HIDDEN, "tokens": 2, "b": "password"}
    assert Redaction().apply(b'{"token":1}') == b'{"token":1}'
    with pytest.raises(BadInput, match="more than 100"):
        Redaction(("x",) * 101)


async def test_the_api_redacts_and_the_log_keeps_every_value(served: Served) -> None:
    served.server.application._redaction._secret = Redaction(("n",))._secret
    async with served.worker() as app:
        await waiting(served, app)
        assert (await served.ask("GET", "/runs/r1"))[1]["input"] == {"n": HIDDEN}
        assert (await app.client.state("r1") if hasattr(app, "client") else await app.state("r1")).created is not None


def test_a_log_line_is_one_json_object_with_the_fields_of_its_writer() -> None:
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(JsonFormatter())
    log = logging.Logger("buoy.recovery")
    log.addHandler(handler)
    log.info("Recovered run %s", "r1", extra={"run_id": "r1", "new_branch": 2, "odd": object})
    try:
        raise ValueError("line\nbreak")
    except ValueError:
        log.exception("failed")
    first, second = map(json.loads, stream.getvalue().splitlines())
    assert (first["text"], first["run_id"], first["new_branch"], first["level"]) == (
        "Recovered run r1",
        "r1",
        2,
        "info",
    )
    assert "ValueError" in second["traceback"]
