"""Unsent writes: what a runner has recorded while its store is away, kept on the disk of its machine.

Invariants: a write is kept as soon as a commit of this process is unclear, and forgotten when its outcome is certain.
The next process commits the writes of a dead one before it takes work: as they are, with their nonces, each log in its
order. So a step that ended while the store was away has its outcome, though its runner died as well.
A write that another runner has overtaken is fenced, as it would have been on its first way.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import groupby
from typing import Protocol

from buoy.engine.services.commits import commit_surely
from buoy.errors import Problem, Unavailable
from buoy.ports.records import Write
from buoy.ports.store import Store


class Spool(Protocol):
    """Keeps writes beyond the end of this process."""

    def keep(self, writes: Sequence[Write]) -> None:
        """They are durable when this returns. A later write for the same place of a log replaces the earlier one."""
        ...

    def forget(self, writes: Sequence[Write]) -> None: ...

    @property
    def empty(self) -> bool: ...


class Unsent:
    """The unsent writes of one journal. A disk that refuses them is reported as a trouble, and stops nothing."""

    def __init__(
        self, spool: Spool, note: Callable[[str, Exception], None], waiting: Callable[[], list[Write]]
    ) -> None:
        self._spool = spool
        self._note = note
        # What runs have recorded after their commits under way, when the store goes away.
        self._waiting = waiting
        # The store gives no clear answers: what is recorded now is kept at once.
        self.away = False

    def keep(self, writes: Sequence[Write]) -> None:
        waiting = [] if self.away else self._waiting()
        self.away = True
        try:
            self._spool.keep([*writes, *waiting])
        except OSError as error:
            self._note(f"the disk refuses unsent writes: {error}", error)

    def arrived(self, writes: Sequence[Write]) -> None:
        """The store has answered, and these have their outcome."""
        self.away = False
        if self._spool.empty:
            return
        try:
            self._spool.forget(writes)
        except OSError as error:
            self._note(f"the disk refuses unsent writes: {error}", error)


async def send_left_behind(store: Store, writes: Iterable[Write]) -> int:
    """Commits what a dead process could not send. The number of writes that stand now. Raises `Unavailable`.

    A run whose writes the store refuses keeps no other from its own. Its error is raised at the end.
    """
    stand, refused = 0, list[Problem]()
    ordered = sorted(writes, key=lambda write: (write.run_id, write.after_seq))
    for _, of_run in groupby(ordered, key=lambda write: write.run_id):
        try:
            for write in of_run:
                if not await commit_surely(store, write):
                    break  # another runner has moved this run on
                stand += 1
        except Unavailable:
            raise
        except Problem as error:
            refused.append(error)
    if refused:
        raise refused[0]
    return stand
