"""Event lines: each event of a log in a few words, for `buoy events` and `buoy run`."""

from __future__ import annotations

import msgspec

from buoy.core.explain.phrases import leaf_text, shortened
from buoy.core.log import events as e
from buoy.core.log.document import OpenLeaf
from buoy.core.log.wording import error_text

_VALUE_CHARS_MAX = 80


def describe(body: e.Body) -> str:
    """What this event says, beyond its name."""
    match body:
        case e.StepStarted() | e.ModuleStarted():
            return f"{body.leaf}, attempt {body.attempt}{given_text(body.args)}"
        case e.StepCompleted() | e.ModuleCompleted():
            return f"{body.leaf} = {short_json(body.result)}"
        case e.StepFailed() | e.ModuleFailed():
            return f"{body.leaf}, attempt {body.attempt}: {error_text(body.error)}"
        case e.RetryScheduled() | e.CompensationRetryScheduled():
            return f"{body.leaf}, attempt {body.attempt} failed: {error_text(body.error)}"
        case e.InteractionRequested():
            return f"{body.question.title!r} (id {body.question_id})"
        case e.InteractionResponse():
            return f"{body.question_id} = {short_json(body.answer)}{_by(body.by)}"
        case e.SignalWaited():
            return f"{body.leaf} waits for {body.name!r}"
        case e.SignalReceived():
            return (
                f"{body.leaf}: the time is over"
                if body.message is None
                else f"{body.leaf} = {short_json(body.payload)}"
            )
        case e.ChildStarted():
            return f"{body.leaf}: run {body.child} of {body.workflow}{given_text(body.input)}"
        case e.ChildFinished():
            return f"{body.leaf}: run {body.child} {body.status}{_outcome(body)}"
        case e.CompensationFailed() | e.JobHeld():
            return f"{body.leaf}: {error_text(body.error)}"
        case e.JobOffered():
            return f"{body.leaf} in lot {body.lot}"
        case _:
            return _describe_run_level(body)


def _describe_run_level(body: e.Body) -> str:
    match body:
        case e.WorkflowCreated():
            return f"{body.workflow}, version {body.version or 'none'}{_by(body.by)}{given_text(body.input)}"
        case e.Claimed():
            return f"by {body.runner}, {body.cause.replace('_', ' ')}{_evidence(body.evidence)}"
        case e.Interrupted():
            return f"{body.runner} stopped on {body.signal}"
        case e.Paused():
            return f"{body.reason}{': ' + body.detail if body.detail else ''}{_by(body.by)}"
        case e.CancelRequested():
            return f"{body.reason or 'no reason was given'}{_by(body.by)}"
        case e.WorkflowCompleted():
            return short_json(body.result)
        case e.WorkflowFailed():
            return error_text(body.error)
        case e.WorkflowCancelled():
            return body.reason or ""
        case e.Moved():
            return f"to {body.to}"
        case e.JobsEnded():
            return f"reported by {body.lot}"
        case e.JobsReset() | e.JobsStopped():
            how = "disabled" if isinstance(body, e.JobsStopped) and body.disabled else ""
            names = ", ".join(body.leaves[:5]) + (" and more" if len(body.leaves) > 5 else "")
            return f"{names} {how}{_by(body.by)}".strip()
        case e.ClusterChanged():
            return f"{', '.join(dict.fromkeys(str(each.__struct_config__.tag) for each in body.changes))}{_by(body.by)}"
        case e.Published():
            return published_text(body)
        case e.MessageRefused():
            return f"message {body.message}: {body.reason}"
        case e.WorkflowRecovered():
            return body.reason  # it begins with the code of the finding
        case e.BranchCreated():
            return f"branch {body.branch} of {body.parent} at event {body.cutoff_seq} ({body.cause})"
        case e.VersionBound():
            return _binding(body)
        case _:
            return str(e.leaf_of(body) or "")


def _binding(body: e.VersionBound) -> str:
    names = ", ".join(f"{old} is now {new}" for old, new in body.renamed.items())
    parts = [f"{body.previous or 'none'} to {body.version or 'the next code that fits'}", names, body.detail or ""]
    return "; ".join(part for part in parts if part)


def spoken(event: e.Event) -> str:
    """The event as a line for a person who watches the run."""
    text = describe(event.body)
    name = event.type.replace("_", " ")
    return f"{name}: {text}" if text else name


def leaf_line(leaf: OpenLeaf) -> str:
    """An open leaf with its error, if it is tried again."""
    error = f" after {error_text(leaf.error)}" if leaf.error is not None else ""
    return f"{leaf_text(leaf)}{error}"


def short_json(raw: msgspec.Raw) -> str:
    """A stored value, cut to what a line has room for."""
    text = bytes(raw).decode(errors="replace")
    return shortened(text, _VALUE_CHARS_MAX)


def published_text(body: e.Published) -> str:
    """The last value, and how many others there are."""
    others = f" and {len(body.items) - 1} before it" if len(body.items) > 1 else ""
    dropped = f", {body.dropped} dropped" if body.dropped else ""
    full = ", and the run keeps no more" if body.full else ""
    last = body.items[-1]
    return f"{last.step} to {last.channel}: {short_json(last.value)}{others}{dropped}{full}"


def given_text(raw: msgspec.Raw) -> str:
    """The arguments of a call; empty if there are none."""
    return "" if bytes(raw) in (b"null", b"{}") else f"  {short_json(raw)}"


def _outcome(body: e.ChildFinished) -> str:
    return f" = {short_json(body.result)}" if body.error is None else f": {error_text(body.error)}"


def _by(person: str | None) -> str:
    return f", by {person}" if person else ""


def _evidence(evidence: dict[str, str | int | float | bool | None]) -> str:
    if not evidence:
        return ""
    who = f" from {evidence['runner']}" if evidence.get("runner") else ""
    why = evidence.get("proof") or evidence.get("orphan")
    return who + (f" ({why})" if why else "")
