"""Sync code: interprets programs as plain functions do, with `buoy.gather` for concurrent parts."""

from __future__ import annotations

from typing import Any

import buoy
from simulator.async_code import Names, asked
from simulator.programs import RETRIES, Node
from simulator.steps import book, errand, extra, labour, lease, reserve, stubborn, work, work_sync


class SyncCode:
    """One release of it."""

    def __init__(self, names: Names, *, more: bool, renamed: bool) -> None:
        self._names = names
        self._more = more
        self._work = labour if renamed else work

    def run(self, node: Node, given: Any) -> Any:
        match node.op:
            case "seq":
                found: list[Any] = []
                for kid in node.kids:
                    found.append(self.run(kid, found[-1:]))
                return found
            case "both":
                return self._both(node, given)
            case "step" | "sync" | "child":
                try:
                    return self._call(node, given)
                except (buoy.StepFailed, buoy.RunFailed, buoy.RunCancelled):
                    if not node.catch:
                        raise
                    return f"{node.id} failed"
            case "pack":
                return list(buoy.gather(*(reserve.call(kid.id, kid.takes_s) for kid in node.kids)))
            case "book":
                return book.call(node.id).result()
            case "lease":
                return lease.call(node.id).result()
            case "stubborn":
                return stubborn.call(node.id, node.fails).result()
            case "errand":
                return errand.call(node.id, node.takes_s).result()
            case "derive":
                work_sync(node.id, 0, (buoy.now().isoformat(), str(buoy.uuid()), buoy.random().random()))
                return node.id
        return self._wait(node)

    def _wait(self, node: Node) -> Any:
        if self._more:
            extra(node.id)
        match node.op:
            case "sleep":
                buoy.sleep(node.takes_s)
            case "ask":
                return asked(node)
            case "signal":
                return buoy.wait_signal(node.name)["value"]
            case "signal_or":
                try:
                    came = buoy.wait_signal(node.name, timeout=node.limit_s)["value"]
                except TimeoutError:
                    came = "late"
                work_sync(node.id, 0, came)
        return node.id

    def _call(self, node: Node, given: Any) -> Any:
        if node.op == "child":
            return self._names.named(node.name)(node.kids[0])
        if node.op == "sync":
            return work_sync(node.id, node.fails, given)
        return self._work.call(node.id, node.takes_s, node.fails, given).result()

    def _both(self, node: Node, given: Any) -> Any:
        """Several at the same time; failing ones are tried apart: the result must not depend on who is first."""
        well = [kid for kid in node.kids if kid.fails <= RETRIES]
        found = buoy.gather(*(self._work.call(kid.id, kid.takes_s, kid.fails, given) for kid in well))
        by_id = dict(zip([kid.id for kid in well], found, strict=True))
        return [by_id[kid.id] if kid.id in by_id else self.run(kid, given) for kid in node.kids]
