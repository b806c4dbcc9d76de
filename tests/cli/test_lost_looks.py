"""A store that gives no answer after a request was stored: the command says what is stored, so it is not repeated."""

from __future__ import annotations

import pytest

from buoy.ports.host import Clock
from buoy.stores import open_store
from buoy.wiring import inspection
from tests.lossy import LossyStore

from .conftest import ASKING, FLOWS, Buoy

UNKNOWN = "which process will handle it is not known (the answer to runners was lost"


@pytest.fixture
def unseen(monkeypatch: pytest.MonkeyPatch) -> None:
    """No look at the runners is answered, and all else is."""

    async def open_unseen(url: str, clock: Clock) -> LossyStore:
        return LossyStore(await open_store(url, clock), seed=1, rate=0.0, rates={"runners": 1.0})

    monkeypatch.setattr(inspection, "open_store", open_unseen)


@pytest.mark.usefixtures("unseen")
def test_a_run_that_was_stored_is_named_though_the_look_at_the_workers_fails(buoy: Buoy) -> None:
    found = buoy("start", f"{FLOWS}:divide", "--arg", "number=5")
    assert "it is stored; whether a worker will take it is not known (the answer to runners was lost" in found.stderr
    (run_id,) = found.stdout.split()
    again = buoy.json("start", f"{FLOWS}:divide", "--arg", "number=5", "--id", run_id)
    assert (again["run_id"], again["created"]) == (run_id, False)
    assert "the answer to runners was lost" in again["unseen"]


@pytest.mark.parametrize(
    ("words", "workflow"),
    [(("signal", "r", "packed"), "signalled"), (("answer", "r", "yes"), "asked_then_signalled")],
    ids=["signal", "answer"],
)
def test_a_message_that_was_sent_is_said_to_be(
    buoy: Buoy, words: tuple[str, ...], workflow: str, request: pytest.FixtureRequest
) -> None:
    file = FLOWS if workflow == "signalled" else ASKING
    buoy("start", f"{file}:{workflow}", "--id", "r")
    buoy("worker", str(file), "--until-idle")
    request.getfixturevalue("unseen")
    assert UNKNOWN in buoy(*words).stdout


class Losses(dict[str, float]):
    """Loses the next `left` looks at the runners, and nothing else."""

    def __init__(self, left: int) -> None:
        super().__init__(runners=0.0)
        self.left = left

    def get(self, name: str, default: float = 0.0) -> float:  # type: ignore[override]
        if name != "runners" or not self.left:
            return 0.0
        self.left -= 1
        return 1.0


@pytest.mark.parametrize(("losses", "code"), [(4, 0), (10_000, 5)])
def test_a_worker_that_ends_when_idle_looks_again_a_few_times(
    buoy: Buoy, losses: int, code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    buoy("start", f"{FLOWS}:divide", "--arg", "number=5", "--id", "r")

    async def open_losing(url: str, clock: Clock) -> LossyStore:
        return LossyStore(await open_store(url, clock), seed=1, rates=Losses(losses))

    monkeypatch.setattr(inspection, "open_store", open_losing)
    found = buoy("worker", str(FLOWS), "--until-idle", code=code)
    assert "the answer to runners was lost (a test); the worker looks again" in found.output
    assert ("nothing is left to do now" in found.output) is (code == 0)
