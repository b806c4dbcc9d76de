"""Unsent writes of a dead process: a run whose writes are refused keeps no other run from its own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from buoy.core.ids import RunId
from buoy.core.log import events as e
from buoy.core.log.append import append
from buoy.engine.services.commits import write_of
from buoy.engine.services.unsent import send_left_behind
from buoy.errors import CorruptLog
from buoy.ports.records import Write
from tests.engine.harness import store_at


def birth(name: str) -> Write:
    created = e.WorkflowCreated(workflow="flow", input=e.NULL)
    return write_of(append(RunId(name), (), [created], 100.0, f"nonce-{name}"), None)


async def test_a_run_whose_unsent_writes_are_refused_keeps_no_other_from_its_own(
    any_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with store_at(any_url) as store:
        real = store.commit

        async def commit(writes: Sequence[Write]) -> Any:
            if any(write.run_id == "a-refused" for write in writes):
                raise CorruptLog("planted by this test")
            return await real(writes)

        monkeypatch.setattr(store, "commit", commit)
        with pytest.raises(CorruptLog):
            await send_left_behind(store, [birth("a-refused"), birth("b-sound")])
        assert await store.run(RunId("b-sound")) is not None
