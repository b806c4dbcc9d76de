"""How many requests each operation makes on a real server: counted here, by a proxy before the server, and in memory.

All three agree. `BUOY_S3_ALL=1` counts every case; without it, those that show each kind of request.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys

import pytest

from buoy.stores.objects.buckets.s3 import S3Bucket
from buoy.stores.objects.buckets.s3_address import parse_address
from buoy.stores.objects.index.counts import PAGE
from tests.stores.test_requests import ROOT, SCRIPT, WANTED

from .planted import plant_objects
from .proxy import proxy
from .seaweed import Seaweed, credentials

EXACT = ("life", "driven", "signals", "remote", "takeover", "looks")
MORE = ("lists", "sweep", "sweep-held", "sweep-parked", "sweep-many")
# A read that got no answer is sent again by itself, and billed: then the count is taken again.
TRIES = 6
IDLE_S = 600


def _counted(server: Seaweed, *cases: str, bucket: str = "tests.s3.counted:make") -> dict[str, tuple[int, ...]]:
    command = [sys.executable, str(SCRIPT), "--json", "--small", "--bucket", bucket]
    for case in cases:
        command += ["--only", case]
    env = {**os.environ, **credentials(), "BUOY_COUNTED_PORTS": json.dumps(server.ports)}
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return {name: tuple(each["now"].values()) for name, each in json.loads(done.stdout).items()}


def test_a_real_server_gets_as_many_requests_as_are_counted_in_memory(server: Seaweed) -> None:
    cases = EXACT + (MORE if "BUOY_S3_ALL" in os.environ else ())
    wanted = _counted(server, *cases, bucket="memory")
    assert all(WANTED[name] == number for name, number in wanted.items() if name in WANTED)
    for last in (False,) * (TRIES - 1) + (True,):
        try:
            assert _counted(server, *cases) == wanted
            return
        except AssertionError:
            if last:
                raise


def test_an_idle_worker_on_a_real_server_makes_one_request_in_five_seconds(server: Seaweed) -> None:
    found = _counted(server, "idle")
    assert sum(found["idle worker, ten minutes"]) <= 0.2 * IDLE_S
    assert sum(found["5 idle workers, ten minutes"]) <= 5 * 0.2 * IDLE_S


@pytest.mark.slow
def test_senders_that_meet_on_a_real_server_stay_within_their_budget(server: Seaweed) -> None:
    """The case itself looks for stale entries."""
    (puts, *_) = _counted(server, "senders")["100 senders to one run at once"]
    assert 300 <= puts <= 600


def test_pages_of_runs_of_one_moment_are_listed_once(server: Seaweed, prefix: str) -> None:
    """SeaweedFS does not list in byte order, so each page began with the first of them again."""
    names = [f"index/98232774399999999~run-{number:06}~000000000000" for number in range(2_500)]
    plant_objects(server, prefix, dict.fromkeys(names, b"{}"))

    async def play() -> list[str]:
        bucket = await S3Bucket.open(parse_address(between.url(prefix)))
        found: list[str] = []
        while page := await bucket.list("index/", after=found[-1] if found else None, limit=PAGE):
            found += page
        await bucket.close()
        return found

    with proxy(server) as between:
        assert asyncio.run(play()) == names
        # The fourth page is empty.
        assert between.counts == {"LIST": 4}
