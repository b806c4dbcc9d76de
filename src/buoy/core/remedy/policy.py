"""Policy: which remedy a workflow allows for a finding, and where its policy is looked up.

Invariants: the policy decides about work that was executing when its owner died. A run that lost only a task or a
wake-up always continues. So does one that stopped in good order, waits, or is being undone: nothing of it is unclear.
A lookup that fails skips the run and says so. Only a run whose workflow is certainly unknown fails.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, TypeAlias

import msgspec

from buoy.core.diagnosis.facts import Facts
from buoy.core.diagnosis.findings import Finding
from buoy.core.log.document import Document
from buoy.core.log.lifecycle import Status

Action: TypeAlias = Literal["resume", "restart", "fail", "hold", "retry", "compensate", "quarantine", "skip"]
POLICIES = ("resume", "restart", "fail", "hold")
# Given to a sweep, or the registry of a process: a policy, or None for "not one of mine".
Lookup: TypeAlias = Callable[[Document], str | None]


class Decision(msgspec.Struct, frozen=True):
    """What is done about a finding. `error_class`: with what a run is failed."""

    action: Action
    why: str
    policy: str = "resume"
    error_class: str = "unknown"


class Ruling(msgspec.Struct, frozen=True):
    """The policy of a run, and who says so. `policy` None: it could not be found out, so the run is left alone."""

    policy: str | None
    source: str
    problem: str | None = None

    @property
    def orphaned(self) -> bool:
        """True if the workflow is certainly unknown."""
        return self.source == "default"


def lookup_policy(
    document: Document, callback: Lookup | None = None, registry: Lookup | None = None, stored: str | None = None
) -> Ruling:
    """From the callback, the registry, the stored definition or `workflow_created`; else `fail`."""
    for source, lookup in (("callback", callback), ("registry", registry)):
        if lookup is None:
            continue
        try:
            found = lookup(document)
        except Exception as error:  # noqa: BLE001 - the user's code; one bad lookup must not fail a run, nor a sweep
            return Ruling(None, source, f"the policy lookup ({source}) failed: {type(error).__name__}: {error}")
        if found is not None:
            return _ruling(found, source)
    if stored:
        return _ruling(stored, "stored")
    return Ruling("fail", "default")


def _ruling(found: str, source: str) -> Ruling:
    if found in POLICIES:
        return Ruling(found, source)
    known = ", ".join(POLICIES)
    return Ruling(None, source, f"unknown policy {found!r} (from {source}); choose one of {known}")


def decide(finding: Finding, policy: str, facts: Facts, *, orphaned: bool = False, adopt: bool = False) -> Decision:
    """What is done about a finding under that policy."""
    if not finding.trouble:
        return Decision("skip", "it is healthy", policy)
    if finding.code == "A4" and finding.evidence.get("class") == "unknown":
        return _unknown_failure(policy)
    match finding.remedy:
        case "none" | "report":
            return Decision("skip", "only a person or another process can act", policy)
        case "adopt" if not adopt:
            return Decision("skip", "a foreign run is taken in only when that is asked for (--adopt)", policy)
        case "quarantine":
            return Decision("quarantine", "it crashes the processes that drive it", policy)
        case "retry":
            return Decision("retry", f"an error of class {finding.evidence.get('class')} is tried again", policy)
        case "compensate":
            return Decision(
                "compensate", "the run acts on the failure: it undoes its completed steps and fails", policy
            )
        case "hold" | "fail":
            return Decision(finding.remedy, finding.reason, policy, str(finding.evidence.get("class", "unknown")))
        case "bind" | "rebuild" | "requeue" | "adopt":
            return Decision("resume", "nothing that was under way is in doubt", policy)
        case "branch" | "release":
            return _by_policy(finding, policy, facts, orphaned=orphaned)


def _unknown_failure(policy: str) -> Decision:
    """A step failed in a way that says nothing about another try."""
    match policy:
        case "resume":
            return Decision("compensate", "its policy is resume: the run itself acts on the failure", policy)
        case "restart" | "hold" | "fail":
            return Decision(policy, f"its policy is {policy}", policy)
        case _:
            return Decision("skip", f"its policy {policy!r} is unknown here", policy)


def _by_policy(finding: Finding, policy: str, facts: Facts, *, orphaned: bool) -> Decision:
    if facts.document.status is Status.COMPENSATING:
        return Decision("resume", "what is being undone is undone to its end", policy)
    if facts.document.status is not Status.RUNNING or finding.code == "A3":
        return Decision("resume", f"the run was {facts.document.status}: nothing was under way", policy)
    match policy:
        case "resume" | "restart" | "hold":
            return Decision(policy, f"its policy is {policy}", policy)
        case "fail" if orphaned:
            return Decision("fail", "no process and no stored definition knows its workflow", policy, "orphaned")
        case "fail":
            return Decision("fail", "its policy is fail", policy)
        case _:
            return Decision("skip", f"its policy {policy!r} is unknown here", policy)
