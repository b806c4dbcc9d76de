"""The crash test for users' workflows in a real bucket: it finds the same, and leaves only the probe's result."""

from __future__ import annotations

import asyncio
from pathlib import Path

import msgspec
import pytest

import buoy
from buoy.stores.objects.buckets.s3 import S3Bucket
from buoy.stores.objects.buckets.s3_address import parse_address
from buoy.testing import Options, crash_test
from tests.testing import flows
from tests.testing.test_command import call

from .seaweed import Seaweed

LAMP = msgspec.Raw(b'{"item": "lamp"}')
# The bucket is probed once for all of them.
PREFIX = "crashtest"


def left(url: str) -> list[str]:
    async def look() -> list[str]:
        bucket = await S3Bucket.open(parse_address(url))
        try:
            return [key for key in await bucket.list("") if not key.startswith("buoy-crashtest/probed/")]
        finally:
            await bucket.close()

    return asyncio.run(look())


@pytest.mark.slow
@pytest.mark.parametrize("real", [False, True], ids=["in this process", "with real kills"])
def test_a_crash_test_in_a_bucket_leaves_nothing_behind(
    real: bool, server: Seaweed, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = server.url(PREFIX)
    monkeypatch.setenv("BUOY_STORE", url)
    options = Options(real=real, store="s3", max_crashes=1 if real else None, cancels=False, fresh=False)
    report = crash_test(flows.double_charge, msgspec.Raw(b"{}"), None, options)
    assert report.reference.status == "completed" and report.crashes
    assert report.store == "s3"
    assert real or {finding.kind for finding in report.findings} == {"repeated"}
    assert left(url) == []


@pytest.mark.slow
def test_a_right_workflow_has_no_findings_in_a_bucket(server: Seaweed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BUOY_STORE", server.url(PREFIX))
    options = Options(store="s3", max_crashes=3, cancels=False, fresh=False)
    assert crash_test(flows.checkout, LAMP, flows.ANSWERS, options).findings == ()


def test_a_url_names_the_bucket_of_the_crash_test(server: Seaweed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BUOY_STORE", "sqlite:///unused.db")
    found = call("double_charge", "--store", server.url(PREFIX), "--max-crashes", "1", "--no-cancel", code=0)
    assert "double_charge: 2 writes, 1 of 4 points" in found.output
    assert left(server.url(PREFIX)) == []


def test_a_crash_test_in_a_bucket_needs_one(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("BUOY_STORE", f"sqlite:///{tmp_path}/runs.db")
    with pytest.raises(buoy.BadInput, match="the configured store is sqlite; set BUOY_STORE to 's3://"):
        crash_test(flows.double_charge, msgspec.Raw(b"{}"), None, Options(store="s3", fresh=False))
    assert "write the URL of a bucket" in call("double_charge", "--store", "http://x", code=2).stderr
