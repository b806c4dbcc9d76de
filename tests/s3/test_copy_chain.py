"""A family of runs moves from one kind of store to the next, over all kinds, and ends in the last one."""

from __future__ import annotations

import asyncio
from itertools import pairwise
from pathlib import Path

import pytest

import buoy
from buoy.operations.maintenance.copy_runs import copy_run
from tests.postgres_server import fresh_url
from tests.recovery import test_copying

from .seaweed import Seaweed


def test_a_family_moves_over_all_kinds_of_stores_and_repeats_no_step(
    server: Seaweed, prefix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    urls = {
        "first": f"sqlite:///{tmp_path}/first.db",
        "bucket": server.url(prefix),
        "database": fresh_url(),
        "folder": f"file://{tmp_path}/folder",
        "last": f"sqlite:///{tmp_path}/last.db",
    }
    monkeypatch.setattr(test_copying, "url_of", lambda folder, name: urls[name])
    test_copying.WITNESS.clear()

    async def play() -> None:
        await test_copying.family_that_waits(tmp_path, "first")
        for source, target in pairwise(urls.values()):
            async with buoy.connect(source) as here, buoy.connect(target) as there:
                assert {each.state for each in await copy_run(here, there, "parcel-1")} == {"moved"}
                await test_copying.is_gone(here, there)
        await test_copying.ends_there(tmp_path, "last")

    asyncio.run(play())
    assert test_copying.WITNESS == ["pack lamp"]
