"""Runs: a page of the runs that a filter chooses, with the health of each.

Invariant: a list reads documents only, no logs, and loads no engine. A run that cannot be read is named with the
reason, and hides no other.
"""

from __future__ import annotations

import msgspec

from buoy.core.diagnosis.facts import Facts
from buoy.core.ids import check_run_id
from buoy.core.limits import RUNS_PAGE_MAX
from buoy.core.log.events import LOT_WORKFLOW
from buoy.core.log.lifecycle import TERMINAL, Status
from buoy.errors import BadInput
from buoy.operations.access import StoreAccess
from buoy.operations.inspect.run_ids import complete_run_id
from buoy.operations.inspect.run_view import RunView, run_view
from buoy.ports.records import Broken, RunQuery, RunRecord
from buoy.recovery.evidence import facts_of_page
from buoy.recovery.fleet import read_fleet

# A batch run has some hundreds of open lots at most. A page without them may take several looks.
_PAGES_MAX = 40
NOT_ENDED = tuple(sorted(set(Status) - TERMINAL))


class RunFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Which runs are wanted; ages are counted back from the time of the look."""

    statuses: tuple[str, ...] = ()
    workflow: str | None = None
    parent: str | None = None
    text: str | None = None
    newer_than_s: float | None = None
    older_than_s: float | None = None
    stack: str | None = None
    # Unset: of all envs; None: of the default one.
    env: str | msgspec.UnsetType | None = msgspec.UNSET
    # False: lots of batch runs are left out.
    lots: bool = True

    def query(self, now: float) -> RunQuery:
        """The same as a query of the store."""
        unknown = [each for each in self.statuses if each not in set(Status)]
        if unknown:
            raise BadInput(f"unknown status {unknown[0][:40]!r}; choose {', '.join(sorted(Status))}")
        if self.newer_than_s is not None and (self.older_than_s or 0.0) >= self.newer_than_s:
            raise BadInput("no run is both older than --older-than and newer than --newer-than")
        return RunQuery(
            statuses=self.statuses,
            workflow=self.workflow,
            parent=None if self.parent is None else check_run_id(self.parent),
            text=self.text or "",
            created_from=None if self.newer_than_s is None else now - self.newer_than_s,
            created_before=None if self.older_than_s is None else now - self.older_than_s,
            stack=self.stack,
            env=self.env,
        )


class FoundRuns(msgspec.Struct, frozen=True):
    """One page of runs, newest first. `cursor`: where the next page begins; None: this is the last one."""

    facts: tuple[Facts, ...]
    cursor: str | None
    broken: tuple[Broken, ...] = ()

    def listed(self) -> RunList:
        """The page as programs get it."""
        return RunList(tuple(run_view(each) for each in self.facts), self.cursor, self.broken or msgspec.UNSET)


class RunList(msgspec.Struct, frozen=True):
    """A page of runs as `--json` gives it."""

    runs: tuple[RunView, ...]
    cursor: str | None
    broken: tuple[Broken, ...] | msgspec.UnsetType = msgspec.UNSET


async def list_runs(at: StoreAccess, chosen: RunFilter, *, cursor: str | None = None, limit: int = 50) -> FoundRuns:
    """One page. The filter's `parent` may be the beginning of an id."""
    if not 1 <= limit <= RUNS_PAGE_MAX:
        raise BadInput(f"limit must be from 1 to {RUNS_PAGE_MAX}: {limit}")
    if chosen.parent is not None:
        chosen = msgspec.structs.replace(chosen, parent=await complete_run_id(at, chosen.parent))
    query, runs, broken = chosen.query(at.clock.now()), list[RunRecord](), list[Broken]()
    for _ in range(_PAGES_MAX):
        page = await at.store.find_runs(query, cursor, limit - len(runs))
        runs.extend(each for each in page.runs if chosen.lots or each.document.workflow != LOT_WORKFLOW)
        broken.extend(page.broken)
        cursor = page.cursor
        if chosen.lots or cursor is None or len(runs) >= limit:
            break
    fleet = await read_fleet(at.store, at.liveness)
    return FoundRuns(tuple(await facts_of_page(at.store, fleet, runs)), cursor, tuple(broken))
