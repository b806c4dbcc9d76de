"""Aftermath: what a process that was not there finds in the store when all workers have stopped.

Lists name each run once and as it is, counts count it once, and indexes agree with runs. A worker that stopped in order
is not among the living.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from typing import TYPE_CHECKING

import msgspec

from buoy.core.ids import RunId
from buoy.core.log.document import Document
from buoy.core.log.lifecycle import TERMINAL
from buoy.core.schedule.schedule import Schedule
from buoy.ports.maintenance import IndexTrouble
from buoy.ports.records import ENDED, MORE, RunQuery
from buoy.ports.store import Store
from simulator.process import Process
from simulator.witness import Violation

if TYPE_CHECKING:
    from simulator.world import World

# Entries that a crash or a retirement left behind: any reader drops them.
_LEFT_BEHIND = ("left over", "without truth")
# Few, so that every list has several pages.
_PAGE = 3
_PAGES_MAX = 200
_LOOK_S = 60.0

LISTS = "lists tell each run once and as it is"
COUNTS = "counts count each run once"
INDEXES = "indexes and runs agree"
STOPS = "who stops says so"


class Aftermath(msgspec.Struct):
    """All that such a process reads."""

    documents: dict[str, Document] = {}
    schedules: dict[str, Schedule] = {}
    # As lists have them, page after page; by the name of the list.
    lists: dict[str, list[Document]] = {}
    # Purged runs that lists name all the same: an entry whose writer got no answer arrived after the purge. `doctor`
    # finds it.
    late: dict[str, Document] = {}
    # How many runs there are of each status, as the store counts them.
    counts: dict[str, int] = {}
    living: frozenset[str] = frozenset()
    troubles: tuple[IndexTrouble, ...] = ()
    # It came to the end of all that.
    whole: bool = False


def look_after(world: World) -> Aftermath:
    """Reads the store from outside."""
    found, reader = Aftermath(), Process(world, "reader")

    async def read() -> None:
        store = reader.open_store()
        for run_id in world.programs:
            record = await store.run(RunId(run_id))
            if record is not None:
                found.documents[run_id] = record.document
        if world.schedules:
            found.schedules.update({each.name: each for each in await store.schedules.schedules()})
        found.lists = {name: await _listed(store, query) for name, query in _queries(found).items()}
        found.late = {
            document.run_id: document
            for document in found.lists["all"]
            if document.run_id not in found.documents and world.faults.was_late(f"~{document.run_id}~")
        }
        found.counts = await store.counts()
        found.living = frozenset(str(record.info.id) for record in await store.runners())
        found.troubles = await _troubles(store)
        found.whole = True

    reader.spawn(read)
    world.kernel.run_until(lambda: found.whole, world.kernel.time + _LOOK_S)
    return found


async def _troubles(store: Store) -> tuple[IndexTrouble, ...]:
    """Where indexes and runs disagree. What a crash left behind, and any reader drops, is none."""
    found = [each async for each in store.integrity.index_troubles(deep=True) if each is not None]
    return tuple([each for each in found if each.name not in _LEFT_BEHIND and await store.integrity.recheck(each)])


def _queries(found: Aftermath) -> dict[str, RunQuery]:
    """All runs, and those of each status and each workflow."""
    queries = {"all": RunQuery()}
    for document in found.documents.values():
        queries[f"status {document.status.value}"] = RunQuery(statuses=(document.status.value,))
        queries[f"workflow {document.workflow}"] = RunQuery(workflow=document.workflow)
        if document.parent is not None:
            queries[f"parent {document.parent.run}"] = RunQuery(parent=document.parent.run)
    return queries


async def _listed(store: Store, query: RunQuery) -> list[Document]:
    found: list[Document] = []
    cursor: str | None = None
    for _ in range(_PAGES_MAX):
        page = await store.find_runs(query, cursor, _PAGE)
        found += [record.document for record in page.runs]
        cursor = page.cursor
        if cursor is None:
            break
    return found


def what_is_left(world: World, found: Aftermath) -> list[Violation]:
    """What is not as it should be in the store as a whole."""
    if not found.whole:
        return [Violation("the store can be read", f"a reader did not come to its end in {_LOOK_S:.0f} s")]
    stopped = [worker.name for worker in world.all_workers() if worker.stopped_well]
    checks = (
        (LISTS, wrong_lists(found)),
        (COUNTS, wrong_counts(found)),
        (STOPS, still_living(stopped, found)),
        (INDEXES, disagreeing(world.damaged, found)),
    )
    return [Violation(rule, text) for rule, texts in checks for text in texts]


def wrong_lists(found: Aftermath) -> Iterator[str]:
    """Each list has all that belongs to it once, and as the store tells of it alone."""
    for name, listed in found.lists.items():
        kind, _, value = name.partition(" ")
        there = {**found.documents, **found.late}
        wanted = {run_id: each for run_id, each in there.items() if _belongs(each, kind, value)}
        ids = [document.run_id for document in listed]
        if sorted(ids) != sorted(wanted):
            twice = sorted({each for each in ids if ids.count(each) > 1})
            missing, more = sorted(wanted.keys() - set(ids)), sorted(set(ids) - wanted.keys())
            yield f"the list of {name} lacks {missing}, has {more} too many, and {twice} more than once"
        for document in (each for each in listed if each.run_id in wanted and each != wanted[each.run_id]):
            yield f"the list of {name} has {document.run_id} otherwise than the store tells of it alone"


def wrong_counts(found: Aftermath) -> Iterator[str]:
    """Each run counts once, under its status. Of some that ended a store may not tell how."""
    wanted = Counter(document.status.value for document in (*found.documents.values(), *found.late.values()))
    counts = Counter({status: number for status, number in found.counts.items() if status != MORE})
    untold = counts.pop(ENDED, 0)
    left = wanted - counts
    active = any(status not in TERMINAL for status in left)
    enough = left.total() >= untold if MORE in found.counts else left.total() == untold
    if counts - wanted or active or not enough:
        yield f"it counts {dict(found.counts)}, and there are {dict(wanted)}"


def _belongs(document: Document, kind: str, value: str) -> bool:
    match kind:
        case "status":
            return document.status.value == value
        case "workflow":
            return document.workflow == value
        case "parent":
            return document.parent is not None and document.parent.run == value
    return True


def still_living(stopped_well: Iterable[str], found: Aftermath) -> Iterator[str]:
    """A worker that stopped in order has said so."""
    for name in stopped_well:
        if name in found.living:
            yield f"{name} stopped in order, and the store counts it among the living"


def disagreeing(damaged: Collection[str], found: Aftermath) -> Iterator[str]:
    """Where an index and a run disagree. Documents that were spoiled on purpose are no fault."""
    for each in found.troubles:
        if each.run_id not in damaged:
            yield f"{each.run_id or 'the store'}: {each.name}: {each.text}"
