"""Figures: numbers about a store for a monitoring system. A look changes nothing and is bounded.

Invariants: ages are by the store's clock. What would need more than one page of active runs is counted up to that page.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from buoy.core.limits import RUNNERS_GONE_SHOWN, RUNS_PAGE_MAX
from buoy.core.log.takeovers import Takeover, takeovers
from buoy.engine.client.client import Client
from buoy.operations.inspect.runs import NOT_ENDED
from buoy.ports.maintenance import CountsRequests
from buoy.ports.records import RunnerRecord, RunQuery, RunRecord
from buoy.ports.store import Store
from buoy.recovery.fleet import read_fleet, was_lost
from buoy.recovery.sweep.sweeper_health import SweeperState, sweepers_of

# A scrape reads so many logs, and so many events of each.
TAKEN_OVER_SHOWN = 20
TAKEN_OVER_EVENTS = 1_000


class QueueFigures(msgspec.Struct, frozen=True):
    """Runs that are due and that no runner holds. `depth` counts up to one page of active runs."""

    depth: int
    oldest_s: float


class RunnerFigures(msgspec.Struct, frozen=True):
    """A live runner: how old its last heartbeat is, how many runs it holds, and its errors."""

    id: str
    beat_age_s: float | None
    holding: int
    errors: int


class Figures(msgspec.Struct, frozen=True, kw_only=True):
    """All numbers at one moment."""

    runs: dict[str, int]
    queue: QueueFigures
    runners: tuple[RunnerFigures, ...]
    sweepers: tuple[SweeperState, ...]
    # Of the runners that were found dead last: from the last heartbeat to the declaration.
    detected_s: tuple[float, ...]
    # Recoveries of the active runs in that page, and claims after the first: each repeats the step under way.
    recoveries: int
    claims_again: int
    # Of the active runs in that page that were claimed again, at most `TAKEN_OVER_SHOWN`.
    takeovers: tuple[Takeover, ...]
    requests: dict[str, int]


async def store_figures(client: Client) -> Figures:
    """The numbers of the client's store."""
    store = client.store
    fleet = await read_fleet(store, client.liveness, gone=RUNNERS_GONE_SHOWN)
    now = await store.now()
    page = await store.find_runs(RunQuery(statuses=NOT_ENDED), None, RUNS_PAGE_MAX)
    waiting = [each for each in page.runs if each.holder is None and each.due_at is not None and each.due_at <= now]
    known = {str(name): facts for name, facts in fleet.all.items()}
    return Figures(
        runs=await store.counts(),
        queue=QueueFigures(
            len(waiting), max((now - max(each.due_at or now, each.updated_at) for each in waiting), default=0.0)
        ),
        runners=tuple(RunnerFigures(each.id, each.beat_age_s, each.holding, each.errors) for each in fleet.living),
        sweepers=tuple(sweepers_of(tuple(fleet.records.values()), known, now)),
        detected_s=tuple(_detected_s(each) for each in fleet.records.values() if _died(each)),
        recoveries=sum(each.document.recoveries for each in page.runs),
        takeovers=tuple(await _takeovers(store, page.runs)),
        claims_again=sum(max(0, each.document.claims - 1) for each in page.runs),
        requests=store.requests if isinstance(store, CountsRequests) else {},
    )


async def _takeovers(store: Store, runs: Sequence[RunRecord]) -> list[Takeover]:
    """From the newest part of the logs of runs that were taken over lately."""
    again = sorted((each for each in runs if each.document.claims > 1), key=lambda each: each.updated_at, reverse=True)
    found: list[Takeover] = []
    for each in again[:TAKEN_OVER_SHOWN]:
        document = each.document
        after = max(document.head_seq - TAKEN_OVER_EVENTS, 0)
        found += takeovers(await store.events(document.run_id, after, TAKEN_OVER_EVENTS))
    return found


def _died(record: RunnerRecord) -> bool:
    """Declared dead by others. A runner that stopped has beaten its last at that same moment."""
    return was_lost(record) and record.info.role == "worker"


def _detected_s(record: RunnerRecord) -> float:
    assert record.gone_at is not None
    return max(0.0, record.gone_at - record.beat_at)
