"""Counts: how often things may be done: attempts of a step, tries of one version, crashes before a run is set apart.

Pure, as `invariants`. The numbers stand here once more, as the documentation has them: a limit that is changed by
mistake must not change what is checked.
"""

from __future__ import annotations

from collections.abc import Iterator

from buoy.core.log import events as e
from simulator.evidence import Check, Evidence
from simulator.reading import old_name

# Retries by the name of the step, as `steps` and `specs` declare them.
_RETRIES = {"book": 0, "reserve": 0, "lease": 0, "extra": 0, "slow": 1, "undo": 1, "deadly": 0}
_RETRIES_OTHERS = 2
# What a step of these programs declares not to be tried again.
_NEVER_AGAIN = ("Hopeless",)
# docs/recovery.md: from the third crash in a row on a run is driven alone; after five more of those it is set apart.
_SOLO_AFTER = 3
_SOLO_CRASHES = 5

# Claims of a process that writes one commit and lets go.
_DRIVES_NOTHING = ("requested", "recovered")

_STARTS = e.StepStarted | e.ModuleStarted
_STEP_ENDS = (
    e.StepCompleted | e.ModuleCompleted | e.StepFailed | e.ModuleFailed | e.RetryScheduled | e.LeafCancelled
)  # fmt: skip


def attempts_are_counted(found: Evidence) -> Iterator[str]:
    """One after the other, each after the failure of the one before, and no more than the step's retries and one."""
    last: dict[str, int] = {}
    for event in found.log:
        body = event.body
        if isinstance(body, e.BranchCreated):
            last.clear()
        if isinstance(body, _STARTS) and not body.group:
            leaf, name = old_name(body.leaf), body.name if isinstance(body, e.StepStarted) else ""
            if body.attempt > _RETRIES.get(name, _RETRIES_OTHERS) + 1:
                yield f"event {event.seq}: {body.leaf} begins attempt {body.attempt}, more than its retries allow"
            if body.attempt > 1 and leaf in last and last[leaf] != body.attempt - 1:
                yield f"event {event.seq}: {body.leaf} begins attempt {body.attempt} after attempt {last[leaf]} failed"
            last.pop(leaf, None)
        if isinstance(body, e.RetryScheduled):
            last[old_name(body.leaf)] = body.attempt
            if not body.error.retryable or body.error.type in _NEVER_AGAIN:
                yield f"event {event.seq}: {body.leaf} is to be tried again after {body.error.type}"
    yield from _undoing(found.log)
    yield from _bodies(found)
    yield from _given_up_early(found.log)


def _given_up_early(log: list[e.Event]) -> Iterator[str]:
    """An error that may pass is met with all the attempts that the step declares."""
    names: dict[str, str] = {}
    undoing: dict[str, int] = {}
    for event in log:
        body = event.body
        if isinstance(body, e.StepStarted) and not body.group:
            names[body.leaf] = body.name
        elif isinstance(body, e.CompensationStarted):
            undoing[body.leaf] = body.attempt
        elif isinstance(body, e.StepFailed) and body.leaf in names and body.error.type not in _NEVER_AGAIN:
            if body.attempt <= _RETRIES.get(names[body.leaf], _RETRIES_OTHERS):
                yield f"event {event.seq}: {body.leaf} failed for good at attempt {body.attempt}, with retries left"
        elif isinstance(body, e.CompensationFailed) and body.error.retryable:
            attempt = undoing.get(body.leaf, 0)
            if attempt <= _RETRIES["undo"]:
                yield f"event {event.seq}: undoing {body.leaf} was given up at attempt {attempt}"


def _undoing(log: list[e.Event]) -> Iterator[str]:
    """Attempts of compensations: each process counts from the last attempt that failed."""
    failed: dict[str, int] = {}
    for event in log:
        body = event.body
        if isinstance(body, e.BranchCreated):
            failed.clear()
        elif isinstance(body, e.CompensationRetryScheduled):
            failed[old_name(body.leaf)] = body.attempt
        elif isinstance(body, e.CompensationStarted):
            before = failed.get(old_name(body.leaf), 0)
            if body.attempt != before + 1:
                yield f"event {event.seq}: attempt {body.attempt} to undo {body.leaf} begins after {before} failed"
            if body.attempt > _RETRIES["undo"] + 1:
                yield f"event {event.seq}: {body.leaf} is undone by attempt {body.attempt}, more than its retries allow"


def _bodies(found: Evidence) -> Iterator[str]:
    """As the bodies themselves were told, those of compensations as well."""
    most: dict[tuple[str, int], int] = {}
    for body in (each for each in found.bodies if each.what == "start" and not each.gone):
        effect = (old_name(body.leaf), body.redone)
        if body.attempt < most.get(effect, 0) and not _begins_again(found.log):
            yield f"{body.leaf} runs attempt {body.attempt} after attempt {most[effect]}"
        most[effect] = max(body.attempt, most.get(effect, 0))


def _begins_again(log: list[e.Event]) -> bool:
    """A branch that no person asked for hides attempts and keeps the key."""
    return any(isinstance(each.body, e.BranchCreated) and each.body.cause not in ("jump", "retry") for each in log)


def each_version_gets_one_try(found: Evidence) -> Iterator[str]:
    """Code that did not fit is not tried again, unless a person says so or the run has changed since."""
    refused: set[str | None] = set()
    for event in found.log:
        body = event.body
        if isinstance(body, e.Paused) and body.reason == "version":
            refused.add(body.tried_version)
        elif isinstance(body, e.Resumed) and body.version is not None:
            if body.version in refused and not _asked_for(found, event):
                yield f"event {event.seq}: {body.version} is tried again, and did not fit before"
        elif isinstance(body, e.BranchCreated | e.VersionBound | e.CancelRequested | e.Resumed):
            refused.clear()


def _asked_for(found: Evidence, event: e.Event) -> bool:
    """Whether a person wanted something of the run that it had not looked at by then."""
    read = {getattr(each.body, "message", None) for each in found.log[: event.seq]}
    asks = (each for each in found.inbox if each.kind in ("pause", "resume", "cancel"))
    # Where hosts have clocks of their own, the time of a message says nothing about that of an event.
    in_time = (each for each in asks if found.calm_at is None or float(each.sent_at) <= event.at)
    return any(each.number not in read for each in in_time)


def only_what_kills_is_set_apart(found: Evidence) -> Iterator[str]:
    """A run is quarantined after so many crashes alone without progress, and never before."""
    crashes, alone, completed, apart, driven_alone = 0, 0, set[str](), False, False
    for event in found.log:
        body = event.body
        if isinstance(body, e.Claimed) and body.cause not in _DRIVES_NOTHING:
            # Of a task that was lost it is not known how its process ended.
            crashed = body.cause == "taken_over" and "orphan" not in body.evidence
            crashes += crashed
            alone += crashed and driven_alone
            driven_alone = body.evidence.get("solo") is True
        elif isinstance(body, e.Paused):
            apart = body.reason == "poison"
            if apart and (crashes < _SOLO_AFTER + _SOLO_CRASHES or alone < _SOLO_CRASHES):
                yield f"event {event.seq}: it is set apart after {crashes} crashes, {alone} of them alone"
        elif isinstance(body, e.Resumed) and not apart:
            continue  # it was paused for another reason: what it does to its processes is as it was
        elif isinstance(body, e.Resumed) or (isinstance(body, e.BranchCreated) and body.cause in ("jump", "retry")):
            crashes, alone = 0, 0
        elif isinstance(body, e.StepCompleted | e.ModuleCompleted) and body.leaf not in completed:
            completed.add(body.leaf)
            crashes, alone, driven_alone = 0, 0, False


def what_kills_is_set_apart(found: Evidence) -> Iterator[str]:
    """A step that ends its process each time does so a bounded number of times, also if its run begins again.

    A sweep that takes note of a death drives nothing: who dies with the task before it claims the run died of another.
    """
    deaths, kills, driven, completed, executes = 0, False, False, set[str](), set[str]()
    for event in found.log:
        body = event.body
        if isinstance(body, _STARTS):
            kills |= isinstance(body, e.StepStarted) and body.name == "deadly"
            executes.add(body.leaf)
        elif isinstance(body, _STEP_ENDS):
            executes.discard(body.leaf)
            if isinstance(body, e.StepCompleted | e.ModuleCompleted) and body.leaf not in completed:
                completed.add(body.leaf)
                deaths = 0
        elif isinstance(body, e.BranchCreated):
            executes.clear()
            deaths = 0 if body.cause in ("jump", "retry") else deaths
        elif isinstance(body, e.Paused | e.Resumed):
            deaths = 0
        elif isinstance(body, e.Claimed) and body.cause not in _DRIVES_NOTHING:
            died = body.cause == "taken_over" and "orphan" not in body.evidence
            deaths += died and driven and kills and bool(executes)
            driven = "finding" not in body.evidence
            if deaths > _SOLO_AFTER + _SOLO_CRASHES:
                yield f"event {event.seq}: its processes died {deaths} times in a row, and it is not set apart"
    # Its first deaths may come before a runner has claimed it. A death without evidence of how is not charged to it.
    freed = any(isinstance(event.body, e.Resumed | e.BranchCreated) for event in found.log)
    unknown = sum(isinstance(event.body, e.Claimed) and "orphan" in event.body.evidence for event in found.log)
    if not freed and found.code_deaths > _SOLO_AFTER + _SOLO_CRASHES + 2 + unknown:
        yield f"its code ended {found.code_deaths} processes, and it was never set apart"


COUNTS: dict[str, Check] = {
    "attempts are counted": attempts_are_counted,
    "each version gets one try": each_version_gets_one_try,
    "only what kills is set apart": only_what_kills_is_set_apart,
    "what kills is set apart": what_kills_is_set_apart,
}
