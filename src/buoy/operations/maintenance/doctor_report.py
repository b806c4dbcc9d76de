"""Doctor report: what an examination of a store has found, and what was repaired."""

from __future__ import annotations

import msgspec

from buoy.core.ids import RunId
from buoy.ports.maintenance import StoreCheck

# Codes of the store itself, beside those of the catalogue.
STORE, INDEX, PURGE, RUNNER = "store", "index", "purge", "runner"
# What is left to a person in any case.
NEVER_MENDED = frozenset({STORE, "R1"})


class Ailment(msgspec.Struct, frozen=True, omit_defaults=True):
    """One trouble. `code`: of the catalogue, or `store`, `index`, `purge`, `runner`.

    `by_person`: no repair helps; its text says what a person can do.
    """

    code: str
    text: str
    run_id: RunId | None = None
    fixed: bool = False
    by_person: bool = False


class DoctorReport(msgspec.Struct, frozen=True, kw_only=True):
    """All that was looked at and found. `counts`: by code; `left`: how many troubles there still are."""

    store: str
    checks: tuple[StoreCheck, ...]
    runs: int
    # Behind their logs, which is no trouble.
    lagging: int
    # Documents without a log (Q6): no trouble until they are adopted.
    foreign: int
    stale: int = 0  # index entries that the truth has passed: no trouble, their readers drop them
    rebuilt: int
    counts: dict[str, int]
    fixed: int
    left: int
    troubles: tuple[Ailment, ...]
    # Troubles beyond those that are listed one by one.
    untold: int = 0

    @property
    def healthy(self) -> bool:
        return not self.left

    @property
    def unrepaired(self) -> list[Ailment]:
        """Those that are left, as far as they are listed."""
        return [each for each in self.troubles if not each.fixed]


def derived_checks(report: DoctorReport) -> list[StoreCheck]:
    """What a store without a database of its own has no check for, out of what was found in it."""
    named = {check.name for check in report.checks}
    unread, wrong = report.counts.get("R1", 0), report.counts.get(INDEX, 0)
    logs = f"logs that cannot be read: {unread:,}" if unread else "every log that was looked at can be read"
    entries = (
        f"entries that do not fit their runs: {wrong:,}" if wrong else "every entry that was looked at fits its run"
    )
    found = [StoreCheck("integrity", not unread, logs), StoreCheck("indexes", not wrong, entries)]
    return [check for check in found if check.name not in named]
