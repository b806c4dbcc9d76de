"""Failure detector: which runners are dead, and on what evidence.

Invariants: how a runner's death is proven is a field of the runner. If this machine can see the runner, a lock or a
process decides, never silence. A runner in an allocation is not judged by silence either: only its scheduler can prove
it. Any other runner is judged by two looks. The first look is noted on its record. The runner is dead only if the
second look, one heartbeat and some slack later, finds the same heartbeat after a long silence. Both intervals are the
observer's own monotonic time; the clocks of two machines are never compared. A store with a clock may measure the
silence, but not the interval. Only an observer that looked all the time knows that the store was there and that a
heartbeat could have come. Dead is final, and the store refuses the verdict if a heartbeat comes first. Absent on
purpose: the loop that looks. It should look at least every `LOOKS_SLACK_S`.
"""

from __future__ import annotations

from dataclasses import dataclass

from buoy.core.ids import RunnerId
from buoy.core.limits import BEAT_S, LOOKS_SLACK_S, RUNNERS_RETIRED_MAX, SUSPECT_AFTER_S
from buoy.ports.host import Clock, Liveness, Sight
from buoy.ports.records import Evidence, RunnerRecord
from buoy.ports.store import Store

SILENT = "silent"


@dataclass(slots=True)
class _Watch:
    """What this observer knows about one runner elsewhere. Times are its own monotonic ones."""

    beat: int
    since: float
    last: float
    # When the noted first look was first seen, in an unbroken row of looks.
    looked: float | None = None
    # Noted by this observer itself.
    noted: bool = False


class FailureDetector:
    """Decides which runners are dead. Each observer has its own, since it must remember what it saw.

    `once`: for an observer that will not stay. It notes its first look at once. It leaves the second look to the next
    observer (`left`), or makes it itself if an earlier observer noted the first (`pending`).
    `slack_s`: how long it may look away; longer where the store is looked at seldom. `apart_s`: from the first look to
    the second, at least; a beat and the slack if None.
    """

    def __init__(
        self, store: Store, liveness: Liveness, clock: Clock, *, once: bool = False,
        suspect_after_s: float = SUSPECT_AFTER_S, apart_s: float | None = None, slack_s: float = LOOKS_SLACK_S,
    ) -> None:  # fmt: skip
        self._store = store
        self._liveness = liveness
        self._clock = clock
        self._once = once
        self._suspect_after_s = suspect_after_s
        # Two looks in a row must fit into the slack, or every second look would count as a first one.
        self._slack_s = max(slack_s, 2 * store.pace.fleet_s)
        self._apart_s = BEAT_S + self._slack_s if apart_s is None else apart_s
        self._watched: dict[RunnerId, _Watch] = {}

    @property
    def pending(self) -> tuple[RunnerId, ...]:
        """The runners that this observer can judge if it keeps looking."""
        return tuple(
            runner
            for runner, watch in self._watched.items()
            if watch.looked is not None and not (self._once and watch.noted)
        )

    @property
    def left(self) -> tuple[RunnerId, ...]:
        """The runners whose second look is left to the next observer."""
        return tuple(runner for runner, watch in self._watched.items() if self._once and watch.noted)

    async def proof(self, record: RunnerRecord, sight: Sight | None = None) -> Evidence | None:
        """Why that runner is certainly dead; None if that is not proven (yet). `sight`: of a look a moment ago."""
        found = sight or (await self._liveness.look([record]))[record.info.id]
        if found.seen or record.info.proof == "allocation":
            self._watched.pop(record.info.id, None)
            return found.proof
        if record.beaten:
            self._watched.pop(record.info.id, None)
            return None
        return await self._silence(record)

    async def declare_dead(self, record: RunnerRecord, evidence: Evidence) -> int | None:
        """Declares it gone. How many runs were released; None if it has beaten since, so that it is not dead."""
        proof = str(evidence.get("proof", "proven dead"))
        found: Evidence = {"runner": record.info.id, "pid": record.info.pid, **evidence}
        number = record.beat.number if proof == SILENT else None
        self._watched.pop(record.info.id, None)
        return await self._store.declare_dead(
            record.info.id, proof, cause="taken_over", evidence=found, beat_number=number
        )

    def forget(self, living: set[RunnerId]) -> None:
        """Keeps only what is known of these."""
        self._watched = {runner: watch for runner, watch in self._watched.items() if runner in living}

    async def _silence(self, record: RunnerRecord) -> Evidence | None:
        runner, beat = record.info.id, record.beat.number
        watch = self._look(runner, beat)
        silent_s = await self._silent_s(record, watch)
        if record.suspected_beat != beat:
            watch.looked = None
            if not (self._once or silent_s >= self._suspect_after_s):
                return None
            if await self._store.suspect(runner, beat) is None:
                del self._watched[runner]
                return None
            watch.noted = True
        if watch.looked is None:
            # Not before the note was written: that may have taken its time.
            watch.looked = self._clock.monotonic()
        apart_s = watch.last - watch.looked
        if apart_s < self._apart_s or silent_s < self._suspect_after_s:
            return None
        return {
            "proof": SILENT,
            "host": record.info.host,
            "pid": record.info.pid,
            "beat": beat,
            "silent_s": round(silent_s, 1),
            "looks_apart_s": round(apart_s, 1),
        }

    def _look(self, runner: RunnerId, beat: int) -> _Watch:
        now = self._clock.monotonic()
        watch = self._watched.get(runner)
        if watch is None or watch.beat != beat:
            watch = self._watched[runner] = _Watch(beat, since=now, last=now)
        elif now - watch.last > self._slack_s:
            # The store may have been away, so that no beat could come: a full beat from now on.
            watch.looked = None
        watch.last = now
        return watch

    async def _silent_s(self, record: RunnerRecord, watch: _Watch) -> float:
        seen_s = max(watch.last - watch.since, record.quiet_s)
        if not self._store.has_clock:
            return seen_s
        return max(seen_s, await self._store.now() - record.beat_at)


async def strike_unregistered(store: Store, liveness: Liveness, *, dry_run: bool = False) -> None:
    """Removes what is left of processes that were killed while they registered."""
    for runner in () if dry_run else await store.unregistered():
        evidence = liveness.proof_by_name(runner)
        if evidence is not None:
            await store.declare_dead(runner, "killed while it registered", cause="taken_over", evidence=evidence)


async def retire(store: Store, liveness: Liveness, keep: int) -> None:
    """Removes what is left of runners that are gone: old records, and lock files that are free.

    The living runners are read after the files, so the file of a runner that is not among them proves nothing.
    """
    await store.retire(keep, RUNNERS_RETIRED_MAX)
    left = await liveness.left_behind()
    if left:
        living = {record.info.id for record in await store.runners()} | set(await store.unregistered())
        await liveness.clear(runner for runner in left if runner not in living)


async def proven_dead(liveness: Liveness, record: RunnerRecord) -> Evidence | None:
    """What a single look can prove without a trace: only what is seen from here."""
    return (await liveness.look([record]))[record.info.id].proof
