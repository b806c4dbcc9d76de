"""`buoy purge` on a terminal: a person sees what would be deleted before the question."""

from __future__ import annotations

from .conftest import FLOWS, Buoy
from .terminal import Terminal


def test_a_purge_says_what_it_would_delete_before_it_asks(buoy: Buoy) -> None:
    for name in ("d1", "d2"):
        buoy("run", f"{FLOWS}:divide", "--arg", "number=5", "--id", name)
    buoy("start", f"{FLOWS}:sleeper", "--id", "s1")
    terminal = Terminal("purge", "--older-than", "0s", "--store", buoy.store)
    terminal.until("Delete 2 runs for good? [y/N]:")
    assert {"d1", "d2"} <= {line.strip() for line in terminal.screen()}
    terminal.type("n\r")
    assert terminal.close() == 2
    buoy("result", "d1")


def test_a_purge_that_would_delete_nothing_asks_nothing(buoy: Buoy) -> None:
    buoy("start", f"{FLOWS}:sleeper", "--id", "s1")
    terminal = Terminal("purge", "--older-than", "0s", "--store", buoy.store)
    assert terminal.close() == 0
    assert "0 runs purged" in terminal.all and "[y/N]" not in terminal.all
