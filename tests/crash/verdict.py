"""The verdict about one run: its log against what the witness saw. Each line that comes out is a broken promise.

Events are compared with the witness by the one clock of this machine; all processes of a case run on it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import msgspec

from buoy.core.ids import RunId
from buoy.core.log import events as e
from buoy.core.log.lifecycle import Status
from buoy.core.log.state import State, fold

from .harness import Seen

LOST = "taken_over"
# Less than there is between any two lines of a witness that depend on each other.
_MOMENT_S = 1e-6


class Story(NamedTuple):
    """One run as its log, its inbox and the witness tell it. `asleep`: who stood still, from when to when."""

    run: RunId
    policy: str
    result: object
    log: Sequence[e.Event]
    inbox: frozenset[int]
    seen: Sequence[Seen]
    asleep: dict[int, tuple[float, float]]

    def before(self, at: float) -> State:
        return fold(self.run, [event for event in self.log if event.at < at])

    def notes(self, kind: str) -> list[Seen]:
        return [each for each in self.seen if each.what == "note" and each.leaf == kind and each.run == self.run]

    def starts(self) -> list[Seen]:
        return [each for each in self.seen if each.what == "start" and each.run == self.run]


def in_witness_time(log: Sequence[e.Event], seen: Sequence[Seen]) -> list[e.Event]:
    """The log of a store with a clock of its own, dated by the witness: when its writer heard of each commit.

    A commit whose answer was lost is dated before the first thing that rests on it: a body that it starts, or the next
    commit.
    """
    heard = {int(each.key.partition(":")[0]): each.at for each in seen if each.what == "note" and each.leaf == "commit"}
    starts = [each for each in seen if each.what == "start"]
    found: list[e.Event] = []
    limit = float("inf")
    for place in range(len(log) - 1, -1, -1):
        event = log[place]
        if isinstance(event.body, e.StepStarted):
            since = _since(log, place, heard)
            wanted = _attempt(event.body)
            rests = [each.at for each in starts if (each.leaf, each.attempt) == wanted and each.at > since]
            limit = min([limit, *(at - _MOMENT_S for at in rests)])
        found.append(msgspec.structs.replace(event, at=limit))
        if event.nonce is not None:
            limit = min(limit, heard.get(event.seq, limit))
            # The whole commit has one time.
            for number in range(len(found) - 1, -1, -1):
                same = found[number].seq >= event.seq and (number == len(found) - 1 or found[number].nonce is None)
                if not same:
                    break
                found[number] = msgspec.structs.replace(found[number], at=limit)
            limit -= _MOMENT_S
    return found[::-1]


def _attempt(body: e.StepStarted) -> tuple[str, int]:
    return body.leaf, body.attempt


def _since(log: Sequence[e.Event], place: int, heard: dict[int, float]) -> float:
    """From when on a body can rest on this start. Only after a restart do earlier bodies have the same name."""
    wanted = _attempt(log[place].body)  # type: ignore[arg-type]
    earlier = (each.body for each in log[:place])
    if not any(isinstance(body, e.StepStarted) and _attempt(body) == wanted for body in earlier):
        return 0.0
    own = max(each.seq for each in log[: place + 1] if each.nonce is not None)
    return max((at for seq, at in heard.items() if seq < own), default=0.0)


def broken(story: Story) -> list[str]:
    """Every promise that was not kept."""
    if not story.log:
        return ["lost: the run is not there"] if story.notes("started") else ["the run was never started"]
    if [event.seq for event in story.log] != list(range(1, len(story.log) + 1)):
        return [f"disorder: the log has the numbers {[event.seq for event in story.log]}"]
    checks = (lost, disorder, repeated, unended, unaudited, not_fenced)
    return [f"{check.__name__}: {text}" for check in checks for text in check(story)]


def lost(story: Story) -> Iterator[str]:
    """Nothing that the store acknowledged may be missing."""
    for each in story.notes("commit"):
        seq, count, nonce = each.key.split(":", 2)
        there = story.log[int(seq) - 1] if int(seq) <= len(story.log) else None
        if there is None or there.nonce != nonce or len(story.log) < int(seq) + int(count) - 1:
            yield f"the commit of {count} events at {seq} was acknowledged to {each.pid}, and is not in the log"
    used = {number for event in story.log for number in [getattr(event.body, "message", None)] if number is not None}
    for each in story.notes("signalled"):
        if int(each.key) not in story.inbox | used:
            yield f"signal {each.key} was acknowledged, and is lost"


def disorder(story: Story) -> Iterator[str]:
    """Nothing in the log that its own rules do not allow."""
    yield from fold(story.run, story.log).anomalies


def repeated(story: Story) -> Iterator[str]:
    """No completed leaf is executed again on its lineage, and every execution has the same key."""
    claims = sum(isinstance(event.body, e.Claimed) for event in story.log)
    times: Counter[tuple[str, int]] = Counter()
    for each in story.starts():
        # Who woke up in a body that others have finished comes on top.
        times[each.leaf, each.attempt] += not _woke_up_in_it(story, each)
        if each.key != f"{story.run}/{each.leaf}/0":
            yield f"{each.leaf} was executed with the key {each.key}"
        leaf = story.before(each.at).leaves.get(each.leaf)  # type: ignore[call-overload]
        if leaf is None:
            yield f"{each.leaf} was executed before its start was recorded"
        elif leaf.phase == "completed" and not _woke_up_in_it(story, each):
            yield f"{each.leaf} was executed by {each.pid} after its completion was recorded"
    for (name, attempt), count in times.items():
        if count > claims:
            yield f"{name} attempt {attempt} was executed {count} times under {claims} claims"


def _woke_up_in_it(story: Story, start: Seen) -> bool:
    """Whether this was under way in a process that stood still while others completed it.

    Between the word of the store and the body there is no place where such a process could learn that it was given up.
    Its result counts for nothing.
    """
    slept = story.asleep.get(start.pid)
    if slept is None or start.at < slept[0]:
        return False
    leaf = story.before(slept[0]).leaves.get(start.leaf)  # type: ignore[call-overload]
    return leaf is not None and leaf.phase == "open"


def unended(story: Story) -> Iterator[str]:
    """Every run ends as it should, or is paused with a reason."""
    state = fold(story.run, story.log)
    ending = story.log[state.ending_seq - 1].body if state.ending_seq else None
    if state.status is Status.PAUSED:
        if state.pause is None or not state.pause.detail:
            yield "it is paused without a reason"
    elif isinstance(ending, e.WorkflowCompleted):
        found = msgspec.json.decode(ending.result)
        if found != story.result:
            yield f"it ended with {found}, not {story.result}"
    elif isinstance(ending, e.WorkflowFailed) and story.policy == "fail":
        if ending.error.type != "RecoveryRefused" or not ending.error.message:
            yield f"it failed with {ending.error}"
    else:
        why = f": {ending.error.type}, {ending.error.message}" if isinstance(ending, e.WorkflowFailed) else ""
        yield f"it is {state.status}{why}"


def unaudited(story: Story) -> Iterator[str]:
    """A takeover from a dead runner is recorded with its proof, and follows the policy."""
    for place, event in enumerate(story.log):
        claim = event.body
        if not isinstance(claim, e.Claimed) or claim.cause != LOST:
            continue
        # The proof itself, or that it was given before: the holder of the run had been declared dead already.
        if not (claim.evidence.get("proof") or claim.evidence.get("orphan")):
            yield f"the claim at {event.seq} has no proof: {claim.evidence}"
        before = fold(story.run, story.log[:place])
        if before.status is Status.RUNNING and not before.interrupted:
            yield from _remedy(story, event.seq, [each.body for each in story.log[place + 1 : place + 4]])
    for event in story.log:
        if isinstance(event.body, e.BranchCreated) and not _tells_of(story.log, event.body):
            yield f"nothing tells of branch {event.body.branch}"


def _remedy(story: Story, seq: int, then: Sequence[e.Body]) -> Iterator[str]:
    wanted: dict[str, type[e.Payload]] = {"restart": e.WorkflowRecovered, "fail": e.WorkflowFailed, "hold": e.Paused}
    kind = wanted.get(story.policy)
    if kind is not None and not any(isinstance(body, kind) for body in then):
        yield f"after the claim at {seq} the policy {story.policy} was not applied: {[type(body) for body in then]}"


def _tells_of(log: Sequence[e.Event], branch: e.BranchCreated) -> bool:
    return any(
        isinstance(event.body, e.WorkflowRecovered)
        and event.body.new_branch == branch.branch
        and event.body.reason
        and event.body.finding
        and event.body.actor
        for event in log
    )


def not_fenced(story: Story) -> Iterator[str]:
    """A process that was declared dead writes no more; a suspended one is not declared dead on its own machine."""
    for event in story.log:
        claim = event.body
        if not isinstance(claim, e.Claimed) or claim.cause != LOST:
            continue
        pid = claim.evidence.get("pid")
        for each in story.notes("commit"):
            if each.pid == pid and int(each.key.partition(":")[0]) > event.seq:
                yield f"{pid} was given up at {event.seq}, and its commit at {each.key} was accepted"
        began, ended = next((slept for who, slept in story.asleep.items() if who == pid), (0.0, 0.0))
        if began <= event.at <= ended and claim.evidence.get("proof") != "silent":
            yield f"{pid} stood still, and was taken for dead on its own machine"


def again(story: Story) -> int:
    """How many bodies ran once more, as they may when they were under way."""
    counts = Counter((each.leaf, each.attempt) for each in story.starts())
    return sum(count - 1 for count in counts.values())


def recoveries(log: Sequence[e.Event]) -> Counter[str]:
    """By the code of the finding, or by how the run came to its next owner."""
    found: Counter[str] = Counter()
    for event in log:
        body = event.body
        if isinstance(body, e.WorkflowRecovered):
            found[f"{body.finding} {body.policy}"] += 1
        elif isinstance(body, e.Claimed) and body.cause in (LOST, "interrupted", "recovered", "resumed"):
            found[body.cause] += 1
        elif isinstance(body, e.Paused):
            found[f"paused: {body.reason}"] += 1
        elif isinstance(body, e.WorkflowFailed) and body.error.type == "RecoveryRefused":
            found["failed by policy"] += 1
    return found
