"""Shrinking: leaves out of a story whatever it breaks its promise without, until nothing more can be left out.

What can be left out has a name: runs and their parts, workers, what befalls them, what people do, each single fault.
Invariant: the shortened story breaks the same promise, and one command plays it again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from simulator.seed import Verdict, run_seed

# Stories that are tried at most. Most seeds need less than half of them.
TRIES_MAX = 400
_LINES_MAX = 60

Say = Callable[[str], None]


def shrink(verdict: Verdict, *, tries_max: int = TRIES_MAX, say: Say | None = None) -> Verdict:
    """The shortest verdict that was found to break the same promise, with its whole story."""
    search = _Search(verdict, tries_max, say)
    search.run()
    return run_seed(verdict.seed, verdict.store, verdict.mutant, trace=True, only=search.kept, narrow=verdict.narrow)


class _Search:
    def __init__(self, verdict: Verdict, tries_max: int, say: Say | None) -> None:
        self._verdict = verdict
        self._rule = verdict.violations[0].rule
        self._left = tries_max
        self._say = say
        self.kept = list(verdict.parts)

    def run(self) -> None:
        for group in _kinds(self.kept):
            self._without(group)
        size = max(len(self.kept) // 2, 1)
        while self._left > 0:
            shorter = self._pass(size)
            if size == 1 and not shorter:
                return
            size = max(size // 2, 1)

    def _pass(self, size: int) -> bool:
        """Tries to leave out each stretch of that length. Whether one could be."""
        before, place = len(self.kept), 0
        while place < len(self.kept) and self._left > 0:
            if not self._without(self.kept[place : place + size]):
                place += size
        return len(self.kept) < before

    def _without(self, names: Sequence[str]) -> bool:
        out = set(names)
        if not out or self._left <= 0:
            return False
        self._left -= 1
        fewer = [name for name in self.kept if name not in out]
        whole = self._verdict
        found = run_seed(whole.seed, whole.store, whole.mutant, only=fewer, narrow=whole.narrow)
        if not any(each.rule == self._rule for each in found.violations):
            return False
        # Also what had no part in it any more.
        self.kept = [name for name in fewer if name in set(found.parts)]
        if self._say is not None:
            self._say(f"{len(self.kept)} parts left, {self._left} tries")
        return True


def _kinds(names: Sequence[str]) -> list[list[str]]:
    """The parts by kind: often a whole kind has nothing to do with it."""
    found: dict[str, list[str]] = {}
    for name in names:
        kind = "fault" if ":" in name else "part" if "/" in name else name.rpartition("-")[0]
        found.setdefault(kind, []).append(name)
    return [found[kind] for kind in sorted(found, key=lambda kind: -len(found[kind])) if kind != "run"]


def short_story(verdict: Verdict) -> list[str]:
    """The lines that matter to the run that was wronged, with repetitions told once."""
    run = verdict.violations[0].text.partition(":")[0].partition(" ")[0].partition(".")[0]
    lines: list[str] = []
    again: dict[str, int] = {}
    for line in verdict.story:
        what = line[10:].strip()
        if "run-" in what and run.startswith("run-") and run not in what:
            continue
        again[what] = again.get(what, 0) + 1
        if again[what] == 1:
            lines.append(line)
    told = [line if again[line[10:].strip()] == 1 else f"{line}  ({again[line[10:].strip()]} times)" for line in lines]
    if len(told) <= _LINES_MAX:
        return told
    half = _LINES_MAX // 2
    return [*told[:half], f"{'...':>10}  {len(told) - 2 * half} lines later", *told[-half:]]
