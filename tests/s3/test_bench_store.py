"""`buoy bench-store` and the counts of requests, on a real bucket."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from buoy.cli.main import main

from .proxy import proxy
from .seaweed import Seaweed


def _json(*arguments: str) -> dict[str, object]:
    done = CliRunner().invoke(main, [*arguments, "--json"])
    assert done.exit_code == 0, done.output
    found: dict[str, object] = json.loads(done.stdout)
    return found


def test_each_call_is_measured_and_nothing_is_left(server: Seaweed, prefix: str) -> None:
    url = server.url(prefix)
    found = _json("bench-store", url, "--number", "8", "--put-price", "5", "--get-price", "0.4")
    calls = found["calls"]
    assert isinstance(calls, list) and len(calls) == 6
    assert all(each["median_ms"] > 0 and each["per_s"] > 0 for each in calls)
    assert found["million_steps"] == pytest.approx(5_250)
    assert _json("doctor", "--store", url)
    status, answer = server.request("GET", "/buoy-test", f"list-type=2&prefix={prefix}%2Fprobe%2F")
    assert status == 200 and b"<Key>" not in answer


def test_status_tells_how_many_requests_it_made(server: Seaweed, prefix: str) -> None:
    with proxy(server) as between:
        url = between.url(prefix)
        _json("status", "--store", url)
        between.counts.clear()
        found = _json("status", "--store", url)["requests"]
        assert found == dict(between.counts)


def test_one_price_alone_is_refused() -> None:
    done = CliRunner().invoke(main, ["bench-store", "s3://bucket/x", "--put-price", "5"])
    assert done.exit_code == 2
    assert "give both --put-price and --get-price" in done.output


def test_what_is_no_bucket_is_refused(tmp_path: Path) -> None:
    done = CliRunner().invoke(main, ["bench-store", f"sqlite:///{tmp_path}/runs.db"])
    assert done.exit_code == 2
    assert "is no bucket" in done.output
