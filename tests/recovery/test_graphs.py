"""The graphs of specs for evidence: planned off the event loop, each once, and kept within bounds."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import msgspec
import pytest

from buoy.core.ids import RunId
from buoy.engine.spec.workflow import load_spec
from buoy.recovery import spec_plans
from buoy.recovery.recover import examine
from buoy.recovery.spec_plans import Graphs, graph_of

from .harness import KINDS, RecoveryHarness, created, play

SPEC = """
name: nightly
parameters: {k: "1:3"}
steps:
  - {id: gather, run: "true"}
  - {id: "train_{k}", needs: [gather], run: "true"}
"""


def stored(tmp_path: Path, text: str = SPEC) -> tuple[str, bytes, msgspec.Raw]:
    (tmp_path / "spec.yaml").write_text(text)
    workflow = load_spec(tmp_path / "spec.yaml")
    return workflow.version, workflow.stored, workflow.arguments.encode((), {})


class Planner:
    """Counts the plans, and remembers who made them."""

    def __init__(self) -> None:
        self.threads: list[str] = []

    def __call__(self, version: str, data: bytes, given: msgspec.Raw) -> spec_plans.Graph | None:
        self.threads.append(threading.current_thread().name)
        return graph_of(version, data, given)


@pytest.fixture
def planner(monkeypatch: pytest.MonkeyPatch) -> Planner:
    made = Planner()
    monkeypatch.setattr(spec_plans, "graph_of", made)
    monkeypatch.setattr("buoy.recovery.surroundings.GRAPHS", Graphs())
    return made


@pytest.mark.parametrize("kind", KINDS)
def test_looks_at_runs_of_one_spec_plan_it_once_and_not_on_the_loop(
    tmp_path: Path, planner: Planner, kind: str
) -> None:
    version, data, given = stored(tmp_path)

    async def test(harness: RecoveryHarness) -> None:
        await harness.store.define(version, data)
        for name in ("one", "two"):
            await harness.plant(name, created(workflow="spec:nightly", version=version, input=given))
            seen = await examine(harness.client, RunId(name))
            assert seen.facts.needs is not None and set(seen.facts.needs) == {
                "gather", "train_1", "train_2", "train_3"
            }  # fmt: skip
        assert len(planner.threads) == 1
        assert planner.threads[0] != threading.main_thread().name

    play(tmp_path, test, kind)


def test_other_parameters_are_another_graph_and_what_cannot_be_read_is_asked_for_again(
    tmp_path: Path, planner: Planner
) -> None:
    version, data, given = stored(tmp_path)
    known = Graphs()

    async def ask(content: bytes, more: bytes = b"") -> int | None:
        found = await known.of(version, content, msgspec.Raw(bytes(given) + more))
        return None if found is None else len(found.needs)

    async def test() -> None:
        assert [await ask(data), await ask(data), await ask(data, b" ")] == [4, 4, 4]
        assert len(planner.threads) == 2
        fresh = Graphs()
        assert await fresh.of(version, b"garbage", given) is None
        assert await fresh.of(version, data, given) is not None

    asyncio.run(test())


def test_what_is_kept_is_bounded_by_steps(tmp_path: Path, planner: Planner, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spec_plans, "STEPS_KEPT", 9)
    version, data, given = stored(tmp_path)
    known = Graphs()

    async def test() -> None:
        for number in (0, 1, 2, 0, 2):
            await known.of(version, data, msgspec.Raw(bytes(given) + b" " * number))
        # Two of four steps each are kept: the first was let go for the third, and planned again.
        assert len(planner.threads) == 4

    asyncio.run(test())
