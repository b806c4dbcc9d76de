"""Status: the store as a whole: how many runs there are, which runners work, which processes sweep, what is wrong."""

from __future__ import annotations

import msgspec
from msgspec.structs import replace

from buoy.config import buoy_version
from buoy.core.diagnosis.facts import Facts, RunnerFacts
from buoy.core.diagnosis.health import TROUBLES, death_of, judge
from buoy.core.diagnosis.standstill import without_progress_s
from buoy.core.diagnosis.takers import hindrance
from buoy.core.durations import in_words
from buoy.core.explain.jobs import waits_for_slurm
from buoy.core.explain.phrases import runner_text
from buoy.core.limits import BEAT_S, ERRORS_FRESH_S, RUNS_PAGE_MAX, STALE_AFTER_S, SUSPECT_AFTER_S
from buoy.core.log.lifecycle import TERMINAL, Status
from buoy.core.log.wording import counted
from buoy.engine.client.client import Client
from buoy.operations.inspect.runs import NOT_ENDED
from buoy.ports.maintenance import CountsRequests
from buoy.ports.records import ENDED, MORE, Broken, RunQuery
from buoy.recovery.evidence import facts_of_page, store_trouble
from buoy.recovery.fleet import Fleet, read_fleet
from buoy.recovery.sweep.sweeper_health import SweeperState, sweeper_troubles, sweepers_of, swept_text

__all__ = ["ENDED", "StatusReport", "store_status"]

# A report must not take minutes: it judges the health of at most that many active runs.
_LOOKED_AT_MAX = 20_000


class StatusReport(msgspec.Struct, frozen=True, kw_only=True):
    """All that `buoy status` says."""

    store: str
    buoy: str
    # Opening a store brings it to this Buoy's schema, or is refused.
    schema: str = "up to date"
    runs: dict[str, int]
    # There are more runs that ended than were counted.
    more_runs: bool = False
    health: dict[str, int]
    # Of how many of them, the newest; None: of all that have not ended.
    looked_at: int | None = None
    runners: tuple[RunnerFacts, ...]
    sweepers: tuple[SweeperState, ...] = ()
    # Runs and schedules that cannot be read.
    broken: tuple[Broken, ...] = ()
    troubles: tuple[str, ...]
    notices: tuple[str, ...] = ()
    # What this look cost, where requests cost something.
    requests: dict[str, int] = {}

    @property
    def swept(self) -> str:
        """By which processes the store is swept, and when last: one line."""
        return swept_text(self.sweepers)


class ActiveCounts:
    """Counters for one pass over the active runs."""

    def __init__(self) -> None:
        self.runs: dict[str, int] = {}
        # Those that have not ended, of the runs that were looked at.
        self.active: dict[str, int] = {}
        self.health: dict[str, int] = {}
        # Of how many runs the health was looked at; None: of all that have not ended.
        self.looked_at: int | None = None
        self.troubles: list[str] = []
        # Healthy by all signs, and yet worth a word.
        self.notices: list[str] = []
        # Runs that no live runner holds and none is to come for: a sweeper must look after them.
        self.alone = 0
        # Dead runners that still hold something.
        self.left_by: set[str] = set()
        # Runs that cannot be read, each once: a store may not know which status they have.
        self.broken: dict[str, Broken] = {}
        # How many runs each runner holds: a beat shows what it was a while ago.
        self.held: dict[str, int] = {}


async def run_counts(client: Client) -> dict[str, int]:
    """How many runs there are of each status."""
    return await client.store.counts()


async def store_status(client: Client) -> StatusReport:
    """The report about that client's store."""
    fleet = await read_fleet(client.store, client.liveness)
    now = await client.store.now()
    counts = ActiveCounts()
    await _look_at(client, fleet, counts)
    counts.runs = await _run_counts(client, counts)
    known = {str(name): facts for name, facts in fleet.all.items()}
    sweepers = sweepers_of(tuple(fleet.records.values()), known, now)
    refused = await store_trouble(client.store)
    swept = sweeper_troubles(sweepers, known, needed=counts.alone > 0)
    return StatusReport(
        store=client.store.name,
        buoy=buoy_version(),
        runs={name: counts.runs[name] for name in (*Status, ENDED) if counts.runs.get(name)},
        more_runs=MORE in counts.runs,
        health=counts.health,
        looked_at=counts.looked_at,
        runners=tuple(
            replace(each, holding=counts.held.get(each.id, 0))
            for each in fleet.all.values()
            if each.gone_why is None and _shown(each, counts)
        ),
        sweepers=tuple(sweepers),
        broken=tuple(counts.broken.values()) + tuple(await client.store.schedules.broken()),
        troubles=(
            *([] if refused is None else [refused]),
            *_runner_troubles(fleet, counts),
            *swept,
            *counts.troubles,
        ),
        notices=tuple(counts.notices),
        # Last: all of the above has been asked for by then.
        requests=client.store.requests if isinstance(client.store, CountsRequests) else {},
    )


async def _run_counts(client: Client, counts: ActiveCounts) -> dict[str, int]:
    """The runs of each status. Those that have not ended were just read, unless there are too many."""
    if counts.looked_at is not None:
        return await client.store.counts()
    return {**await client.store.counts(RunQuery(tuple(sorted(TERMINAL)))), **counts.active}


async def _look_at(client: Client, fleet: Fleet, counts: ActiveCounts) -> None:
    """The health of runs that have not ended, the newest first."""
    number, cursor = 0, None
    while number < _LOOKED_AT_MAX:
        page = await client.runs(RunQuery(NOT_ENDED), cursor, RUNS_PAGE_MAX)
        number += len(page.runs)
        counts.broken.update((one.id, one) for one in page.broken)
        for facts in await facts_of_page(client.store, fleet, page.runs, stale_after_s=STALE_AFTER_S):
            _count(facts, counts)
        cursor = page.cursor
        if cursor is None:
            return
    counts.looked_at = number


def _count(facts: Facts, counts: ActiveCounts) -> None:
    verdict = judge(facts)
    status = facts.document.status
    counts.active[status] = counts.active.get(status, 0) + 1
    counts.health[verdict.health] = counts.health.get(verdict.health, 0) + 1
    troubles = _run_troubles(facts)
    counts.troubles += troubles
    long_s = without_progress_s(facts)
    if long_s is not None and not troubles:
        still = f"nothing in it has moved for {in_words(long_s)}, and its worker is alive"
        counts.notices.append(f"{facts.document.run_id} is {facts.document.status}: {still}")
    if facts.holder is not None:
        counts.held[facts.holder.id] = counts.held.get(facts.holder.id, 0) + 1
    if facts.holder is not None and facts.holder.gone:
        counts.left_by.add(facts.holder.id)
    left = facts.holder is None or facts.holder.gone
    # A run that waits for Slurm gets its runner, which sweeps too, with its allocation.
    if facts.document.pause is None and left and not waits_for_slurm(facts):
        counts.alone += 1


def _shown(runner: RunnerFacts, counts: ActiveCounts) -> bool:
    """Whether the report lists a runner: not if it is a dead command that left nothing behind."""
    return not runner.gone or runner.role == "worker" or runner.id in counts.left_by


def _run_troubles(facts: Facts) -> list[str]:
    verdict, doc = judge(facts), facts.document
    if verdict.health in TROUBLES:
        return [f"{doc.run_id} is {verdict.health}: {'; '.join(verdict.reasons)}"]
    if doc.pause is not None and doc.pause.reason != "user":
        return [f"{doc.run_id} is paused: {doc.pause.reason}{': ' + doc.pause.detail if doc.pause.detail else ''}"]
    return []


def _runner_troubles(fleet: Fleet, counts: ActiveCounts) -> list[str]:
    found: list[str] = []
    for each in fleet.all.values():
        if each.gone_why is not None or not _shown(each, counts):
            continue
        if each.doubt is not None:
            look = "; what to do: `buoy doctor`" if each.unreadable is not None else ""
            found.append(f"runner {each.id}: whether it lives is unknown: {each.doubt}{look}")
        elif each.gone:
            found.append(f"{runner_text(each)} is dead but still registered: {'; '.join(death_of(each))}")
        elif (why := hindrance(each)) is not None:
            found.append(f"{runner_text(each)} does not react: {why}; it holds {counted(_held(each, counts), 'run')}")
        elif each.beat_age_s is not None and each.beat_age_s > SUSPECT_AFTER_S:
            rule = f"a beat should come every {in_words(BEAT_S)}, and nothing proves that its process has ended"
            found.append(f"{runner_text(each)} has been silent for {in_words(each.beat_age_s)}: {rule}")
        if each.errors and each.error_age_s <= ERRORS_FRESH_S:
            found.append(f"{runner_text(each)} met {counted(each.errors, 'error')}, the last: {each.last_error}")
    if counts.alone and not any(each.role == "worker" for each in fleet.living):
        found.append("runs wait for a worker, and none is alive: start `buoy worker FILE.py`, for specs without a file")
    return found


def _held(runner: RunnerFacts, counts: ActiveCounts) -> int:
    return counts.held.get(runner.id, 0)
