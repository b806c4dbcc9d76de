"""Paused runs in words: who or what paused them, what is open, what ends the pause.

Invariant: advice that removes the cause comes before a command that would only lead to the same pause again.
"""

from __future__ import annotations

from buoy.core.advice import Advice, Blank, act
from buoy.core.diagnosis.catalogue import CATALOGUE, named
from buoy.core.diagnosis.facts import Facts
from buoy.core.diagnosis.takers import what_is_missing
from buoy.core.diagnosis.wakeups import waits_for_code
from buoy.core.durations import in_words
from buoy.core.explain import phrases
from buoy.core.explain.jobs import jobs_paused
from buoy.core.explain.narrative import Narrative
from buoy.core.explain.phrases import Wording
from buoy.core.limits import SWEEP_S
from buoy.core.log import events as e
from buoy.core.log.pause import CODE_REASONS
from buoy.core.log.wording import counted
from buoy.core.spec.model import is_spec

# reason -> (what, what happens next, what a person can do before resuming)
_PAUSES = {
    "user": (
        "a person or a program asked for it.",
        "No step starts until it is resumed. A step that was executing still ends.",
        "",
    ),
    "rewind": (
        "a request to go back to an earlier step holds it for a moment.",
        "The request then continues it from the earlier step. If the request fails, the run resumes by itself.",
        "",
    ),
    "version": (
        "the code of the workflow has changed, and the run no longer fits.",
        "It continues by itself as soon as a worker has the version that it is bound to, or one that was not tried "
        f"yet: a worker looks for that when it starts, and at every whole sweep (every {in_words(SWEEP_S)}).",
        "bring back the code that the run is bound to, or make the new code fit what the log has",
    ),
    "nondeterminism": (
        "its code did something else than its log says.",
        "Nothing: a person must look at the workflow's code.",
        "correct the code so that it does the same on every replay (time, chance and I/O belong in steps)",
    ),
    "input": (
        "its input does not fit the parameters of its code.",
        "It continues by itself as soon as a worker has code that takes this input: a worker looks for that when it "
        f"starts, and at every whole sweep (every {in_words(SWEEP_S)}).",
        "bring back parameters and types that take this input, or cancel the run and start it again with another input",
    ),
    "poison": (
        "the processes that drove it ended again and again, always while it executed.",
        "Nothing: it is in quarantine, so that it ends no more workers.",
        "find out what ended them: correct the step that is named if it crashes or runs out of memory. If they were "
        "killed from outside, the step is sound",
    ),
    "hold": ("it is held for a person to look at.", "Nothing until a person resumes it.", ""),
}
_SPEC_HELD = (
    "It continues by itself once the definition that it is bound to is in this store: a worker looks for that when it "
    f"starts, and at every whole sweep (every {in_words(SWEEP_S)})."
)
_MOVES = (e.StepCompleted, e.ModuleCompleted, e.StepStarted, e.ModuleStarted, e.InteractionRequested, e.BranchCreated)


def paused(facts: Facts, words: Wording) -> Narrative:
    document, pause = facts.document, facts.document.pause
    if pause is not None and pause.reason == "jobs":
        return jobs_paused(facts, words)
    run_id = document.run_id
    reason = "user" if pause is None else pause.reason
    detail = "" if pause is None or pause.detail is None else pause.detail
    since = words.past(document.updated_at if pause is None else pause.at, facts.now)
    what, following, can = _PAUSES.get(reason, _PAUSES["hold"])
    if reason == "version" and is_spec(document.workflow):
        following, can = _SPEC_HELD, ""
    if reason == "input" and is_spec(document.workflow):
        following = "Nothing: a person must look at the parameters of the spec."
    if reason == "nondeterminism" and _last_migration(facts) is not None:
        following = "Nothing: a person must look at the names that were mapped, or at the workflow's code."
    by = f" by {pause.by}" if pause is not None and pause.by else ""
    policy = " Its policy is hold: a person decides about work that a dead process left unfinished."
    held = policy if reason == "hold" and document.policy == "hold" else ""
    return Narrative(
        headline=f"{run_id} is paused: {what}",
        now=f"Paused{by} {since}.{_said(reason, detail)}{_code(facts)}{held}{_open(facts)}",
        wrong=() if reason == "user" else (detail or what,),
        evidence=(*(_migrated(facts, words) if reason in CODE_REASONS else ()), *_no_task(facts)),
        next=(
            following,
            *(_versions(facts) if reason == "version" else ()),
            *(_cancel_waits(facts) or _not_heard(facts)),
        ),
        you_can=(
            *(_map_again(facts, words) if reason in CODE_REASONS else ()),
            *([act(can)] if can else []),
            *(_bind(facts, words) if reason == "version" else ()),
            *(_migrate(facts, words) if reason == "version" else ()),
            _continue(reason, facts, words),
            words.advise("cancel it", "cancel", run_id),
        ),
    )


def _code(facts: Facts) -> str:
    """Where to look up the finding for which a recovery paused the run."""
    claimed, pause = facts.milestones.claimed, facts.document.pause
    code = None if claimed is None or pause is None or pause.reason == "user" else claimed.evidence.get("finding")
    return f" {named(str(code))} is a code of the catalogue in docs/recovery.md." if code in CATALOGUE else ""


def _no_task(facts: Facts) -> tuple[str, ...]:
    if facts.task is None or facts.task.state not in ("missing", "ended"):
        return ()
    return ("it is in no queue, and needs none while it is paused: `resume` puts it into its queue",)


def _said(reason: str, detail: str) -> str:
    """The recorded reason, marked as such if a person gave it."""
    if not detail:
        return ""
    return f" Reason: {detail.rstrip('.')}." if reason == "user" else f" {detail.rstrip('.')}."


def _bind(facts: Facts, words: Wording) -> tuple[Advice, ...]:
    """How to bind a run of a spec to another definition."""
    if not is_spec(facts.document.workflow):
        return ()
    command = ("migrate", facts.document.run_id, "--spec", Blank("FILE.yaml"))
    return (words.advise("bind it to another file that fits", *command),)


def _open(facts: Facts) -> str:
    """What was open when the run was paused."""
    active = phrases.active_leaves(facts.document)
    if active and facts.live_owner:
        return f" Still under way: {phrases.listed([phrases.leaf_text(each) for each in active])}."
    waits = [each for each in facts.document.open if each.kind != "group"]
    return f" Open: {phrases.listed([phrases.leaf_text(each) for each in waits])}." if waits else ""


def _continue(reason: str, facts: Facts, words: Wording) -> Advice:
    run_id = facts.document.run_id
    if reason in CODE_REASONS:
        return words.advise("try it again with the code that is there", "resume", run_id)
    return words.advise("continue it", "release" if reason == "poison" else "resume", run_id)


def _versions(facts: Facts) -> tuple[str, ...]:
    """Which versions the live workers have."""
    document = facts.document
    alive = [each for each in facts.runners if each.role == "worker" and not each.gone]
    have = sorted({version for each in alive for version in each.workflows.get(document.workflow, ())})
    if is_spec(document.workflow) or document.version in have:
        return ()
    bound = f"It is bound to version {document.version or 'none'}"
    return (f"{bound}; live workers have {phrases.listed(have)}." if have else f"{bound}; no live worker has any.",)


def _migrate(facts: Facts, words: Wording) -> tuple[Advice, ...]:
    """How to map a step, if one was found under another name."""
    found = None if facts.document.pause is None else facts.document.pause.difference
    if found is None or found.log_leaf is None or found.code_leaf is None:
        return ()
    old, new = (leaf.rpartition("#")[0] for leaf in (found.log_leaf, found.code_leaf))
    if not old or not new or old == new:
        return ()
    text = f"if {old} was only renamed to {new}, map it (drop --dry-run to do it)"
    return (words.advise(text, "migrate", facts.document.run_id, "--rename", f"{old}={new}", "--dry-run"),)


def _last_migration(facts: Facts) -> tuple[e.Event, dict[str, str]] | None:
    """The last mapping of names, if only the pause followed it: no step has ended since."""
    for event in reversed(facts.log or ()):
        if isinstance(event.body, e.VersionBound) and event.body.renamed:
            return event, event.body.renamed
        if isinstance(event.body, _MOVES):
            return None
    return None


def _migrated(facts: Facts, words: Wording) -> tuple[str, ...]:
    found = _last_migration(facts)
    if found is None:
        return ()
    event, renamed = found
    names = phrases.listed([f"{old} was said to be {new} now" for old, new in renamed.items()])
    return (f"it was migrated just before, {words.past(event.at, facts.now)} (event {event.seq}): {names}",)


def _map_again(facts: Facts, words: Wording) -> tuple[Advice, ...]:
    """How to revert a wrong mapping, and how to correct it in one step."""
    found = _last_migration(facts)
    if found is None:
        return ()
    back = [word for old, new in found[1].items() for word in ("--rename", f"{new}={old}")]
    run_id = facts.document.run_id
    undo = "if the names were mapped wrongly, map them back (drop --dry-run to do it)"
    say = "or map them back and name what was really renamed"
    return (
        words.advise(undo, "migrate", run_id, *back, "--dry-run"),
        words.advise(say, "migrate", run_id, *back, "--rename", Blank("OLD=NEW"), "--dry-run"),
    )


def _cancel_waits(facts: Facts) -> tuple[str, ...]:
    """A worker has looked at a request to cancel, and could not follow it: clean-up needs the code."""
    asked = [each for each in facts.messages if waits_for_code(facts, each)]
    if not asked:
        return ()
    by = f" by {asked[0].by}" if asked[0].by else ""
    return (
        f"A request to cancel it{by} waits: steps that completed have to be undone, and that needs code that fits. "
        "It is cancelled as soon as such code is there.",
    )


def _not_heard(facts: Facts) -> tuple[str, ...]:
    """The paused run has unread requests, and no worker is there to read them."""
    missing = what_is_missing(facts.document, facts.runners)
    if facts.holder is not None or missing is None:
        return ()
    asked = [each for each in facts.messages if each.kind in ("resume", "cancel", "pause", "jump")]
    if asked:
        names = phrases.listed([each.kind for each in asked])
        return (f"A request ({names}) waits, but no worker has read it: {missing}. The next worker reads it.",)
    if facts.unread:
        return (f"{counted(facts.unread, 'message')} not read yet; {missing}, so start a worker before you resume it.",)
    return (f"To continue after that it needs a worker, and at present {missing}.",)
