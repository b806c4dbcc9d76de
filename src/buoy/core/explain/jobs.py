"""Jobs of batch runs in words: what is offered, what failed, and which jobs no runner can take.

Invariant: the text names the cause, the machine and the time of a failed job before the jobs that wait for it.
"""

from __future__ import annotations

from msgspec.structs import replace

from buoy.core.advice import Advice
from buoy.core.batch.allocations import AllocationStatus, ClusterState, recorded
from buoy.core.batch.jobs import cause_of
from buoy.core.batch.resources import queue_resources
from buoy.core.diagnosis.facts import Facts
from buoy.core.diagnosis.takers import what_is_missing
from buoy.core.explain.narrative import Narrative
from buoy.core.explain.phrases import Wording, listed
from buoy.core.log.leaf import Leaf
from buoy.core.log.state import fold
from buoy.core.log.wording import counted
from buoy.core.spec.model import Resources

_SHOWN_MAX = 5
_NEXT_RUNNER = (
    "The next runner that has what they need runs them, those that a lost runner began too. Nothing is lost until then."
)
CAUSES = {
    "oom": "ran out of memory",
    "timeout": "met its time limit",
    "missing_output": "did not make a file that it should make",
    "signal": "was ended by a signal",
    "exit_code": "failed",
    "allocation_lost": "was lost with its allocation",
    "runner_lost": "was lost with its runner",
}


def jobs_paused(facts: Facts, words: Wording) -> Narrative:
    """A run that rests because failed or cancelled jobs keep all others waiting."""
    document, held = facts.document, held_jobs(facts)
    run_id = document.run_id
    what = f"{counted(len(held), 'job')} failed" if held else "cancelled jobs keep others waiting"
    return Narrative(
        headline=f"{run_id} is paused: {what}, and nothing else can run.",
        now=" ".join(_failed_text(each, facts, words) for each in held[:_SHOWN_MAX]) + _more(held),
        wrong=(what,),
        next=(_after_pause(facts),),
        you_can=(
            words.advise("see what a recovery would do", "recover", run_id, "--dry-run"),
            words.advise("list what failed and what waits", "jobs", run_id, "--status", "failed"),
            *_ways_on(held, facts, words),
            words.advise("cancel the run", "cancel", run_id),
        ),
    )


def _ways_on(held: list[Leaf], facts: Facts, words: Wording) -> tuple[Advice, ...]:
    """How the run continues, shown for the first failed job."""
    if not held:
        return ()
    run_id, job = facts.document.run_id, held[0].name
    return (
        words.advise(f"run {job} again, with the same limits", "reset", run_id, job),
        words.advise(f"go without {job}", "disable", run_id, job),
    )


def _after_pause(facts: Facts) -> str:
    if any(each.kind == "jobs" for each in facts.messages):
        return "A request about its jobs waits in its inbox. The next runner reads it, and continues the run."
    return "Nothing until a job is reset or disabled. After that it needs a runner."


def waits_for_slurm(facts: Facts) -> bool:
    """No live runner can take it, and it has allocations that have not ended."""
    due = facts.holder is None and facts.due_at is not None and facts.due_at <= facts.now
    return due and facts.allocations > 0 and what_is_missing(facts.document, facts.runners) is not None


def at_slurm(facts: Facts, words: Wording) -> Narrative:
    """A run whose runners are still to come, with its allocations."""
    run_id, asked = facts.document.run_id, counted(facts.allocations, "allocation")
    begun = facts.document.claims > 0
    return Narrative(
        headline=f"{run_id} waits for Slurm to start {'its next runner' if begun else 'its first runner'}.",
        now=f"It has {asked} that, by its log and its inbox, did not end. No runner works on it now.",
        next=("The first runner that starts in an allocation takes it. Nothing is lost until then.",),
        you_can=(
            words.advise("see its allocations", "slurm", "allocations", run_id),
            words.advise("compare them with Slurm", "sync-status", run_id),
            words.advise("replace allocations that end too early", "watch", run_id, "--recover"),
            words.advise("list its jobs", "jobs", run_id),
            words.advise("cancel it", "cancel", run_id),
        ),
    )


def jobs_waiting(facts: Facts, words: Wording) -> Narrative:
    """A run whose jobs are on offer."""
    document, held = facts.document, held_jobs(facts)
    run_id, lots = document.run_id, sum(document.lots.values())
    open_jobs = max(0, document.open_count - lots - len(held))
    failed = f"; {counted(len(held), 'job')} failed" if held else ""
    missing = [] if facts.allocations else unserved(facts)
    return Narrative(
        headline=f"{run_id} has {counted(open_jobs, 'job')} on offer in {counted(lots, 'lot')}{failed}.",
        now=" ".join([*(_failed_text(each, facts, words) for each in held[:_SHOWN_MAX]), *_allocations(facts)])
        + _more(held),
        wrong=tuple(missing),
        next=(_NEXT_RUNNER if missing else "It continues as runners tell how their jobs ended.",),
        you_can=(
            *(_help(facts, words) if missing else []),
            *([words.advise("see what a recovery would do", "recover", run_id, "--dry-run")] if held else []),
            words.advise("list its jobs", "jobs", run_id),
            words.advise("cancel it", "cancel", run_id),
        ),
    )


def _help(facts: Facts, words: Wording) -> list[Advice]:
    run_id = facts.document.run_id
    if not _cluster(facts).allocations:
        return [words.advise("start a runner on a machine that has what they need", "runner", "--run", run_id)]
    return [
        words.advise("compare its allocations with Slurm", "sync-status", run_id),
        words.advise("ask for allocations", "slurm", "regenerate", run_id, "--submit"),
    ]


def _allocations(facts: Facts) -> list[str]:
    """What the log says about allocations; the causes of the last ones that ended, if none is left."""
    found = list(_cluster(facts).allocations.values())
    if not found:
        return []
    live = [each for each in found if each.live]
    there = [each for each in live if each.job_id is not None]
    if there:
        active = sum(each.status is AllocationStatus.ACTIVE for each in there)
        return [f"By its log it has {counted(len(there), 'allocation')} at Slurm, {active} of them running."]
    if live:
        return [f"By its log {counted(len(live), 'allocation')} were planned and not submitted."]
    causes = listed(list(dict.fromkeys(each.cause or "unknown" for each in found[-_SHOWN_MAX:])))
    return [f"All of its allocations at Slurm have ended: {causes}."]


def with_cluster(narrative: Narrative, facts: Facts, words: Wording) -> Narrative:
    """Adds commands of actions whose end is not recorded, and why the scheduler was not asked."""
    if facts.cluster is None:
        return narrative
    begun = tuple(
        f"{each.by or 'a command'} began the commands of action {each.action} {words.past(each.at, facts.now)}, and "
        "their end is not recorded: they run now, or were cut short"
        for each in facts.cluster.unfinished
    )
    unasked = facts.cluster.unasked
    evidence = () if unasked is None else (f"Slurm was not asked about its allocations: {unasked}",)
    return replace(narrative, wrong=(*narrative.wrong, *begun), evidence=(*narrative.evidence, *evidence))


def _cluster(facts: Facts) -> ClusterState:
    return ClusterState(recorded(facts.log or ()))


def held_jobs(facts: Facts) -> list[Leaf]:
    """The jobs that failed finally."""
    if not facts.log or not facts.document.held_count:
        return []
    return [leaf for leaf in fold(facts.document.run_id, facts.log).open.values() if leaf.phase == "held"]


def unserved(facts: Facts) -> list[str]:
    """The queues with lots that no living runner serves, by what their jobs need."""
    served = {queue for each in facts.runners if not each.gone for queue in each.queues}
    found = []
    for queue in facts.document.lots:
        resources = queue_resources(facts.document.run_id, queue)
        if resources is not None and queue not in served:
            found.append(f"no live runner takes jobs that need {needs_text(resources)}")
    return found


def needs_text(resources: Resources) -> str:
    """What a job needs, for people."""
    parts = [counted(resources.cpus, "cpu")]
    if resources.memory_bytes is not None:
        parts.append(f"{round(resources.memory_bytes / 2**30, 2):,g} GiB of memory")
    if resources.gpus:
        parts.append(counted(resources.gpus, "gpu"))
    if resources.nodes > 1:
        parts.append(counted(resources.nodes, "node"))
    if resources.time_s is not None:
        parts.append(f"{resources.time_s:g} s")
    return listed(parts)


def _failed_text(leaf: Leaf, facts: Facts, words: Wording) -> str:
    error = leaf.error
    if error is None:
        return f"Job {leaf.name} failed."
    host = error.facts.get("host")
    ended = next((event.at for event in facts.log or () if event.seq == leaf.ended_seq), facts.now)
    place = f" on {host}" if host else ""
    return f"Job {leaf.name} {CAUSES.get(cause_of(error), 'failed')}{place}, {words.past(ended, facts.now)}."


def _more(held: list[Leaf]) -> str:
    return f" And {len(held) - _SHOWN_MAX} more." if len(held) > _SHOWN_MAX else ""
