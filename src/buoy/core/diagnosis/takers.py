"""Takers: who of the living could take a run, and what keeps the others from it.

Invariant: a runner that lives and cannot do anything now counts as one that cannot take a run.
"""

from __future__ import annotations

from collections.abc import Sequence

from buoy.core.diagnosis.facts import LoopFacts, RunnerFacts
from buoy.core.durations import in_words
from buoy.core.limits import LOOP_HELD_S
from buoy.core.log.document import Document
from buoy.core.spec.model import knows


def hindrance(runner: RunnerFacts) -> str | None:
    """Why a living runner can do nothing now, or None."""
    place = f"process {runner.pid} on {runner.host}"
    if runner.stopped:
        return f"{place} is stopped (by SIGSTOP or Ctrl-Z)"
    if runner.loop is None or runner.loop.held_s < LOOP_HELD_S:
        return None
    at = f" (at {runner.loop.where})" if runner.loop.where else ""
    return f"its event loop has been blocked for {in_words(runner.loop.held_s)} by {blocker(runner.loop)}{at}"


def blocker(loop: LoopFacts) -> str:
    """What holds an event loop."""
    if loop.leaf:
        return f"step {loop.leaf} of run {loop.run_id}"
    return f"the workflow code of run {loop.run_id}" if loop.run_id else "code outside of any run"


def can_run(document: Document, runner: RunnerFacts) -> bool:
    """Whether this runner takes the run: it has the code, and tends this run or serves its queue, stack and env."""
    if runner.gone or not knows(runner.workflows, document.workflow) or document.workflow in runner.unable:
        return False
    return document.run_id in runner.tends or (
        runner.role == "worker"
        and document.queue in runner.queues
        and runner.env == document.env
        and (runner.stack is None or document.stack is None or runner.stack == document.stack)
    )


def what_is_missing(document: Document, runners: Sequence[RunnerFacts]) -> str | None:
    """What keeps every live runner from taking this run, or None if one can."""
    # `buoy run` is no worker, but drives the one run that it tends.
    alive = [each for each in runners if (each.role == "worker" or document.run_id in each.tends) and not each.gone]
    able = [each for each in alive if can_run(document, each)]
    if able:
        hindered = [text for each in able if (text := hindrance(each)) is not None]
        return f"the worker that could take it does not react: {hindered[0]}" if len(hindered) == len(able) else None
    if not alive:
        return "no worker is alive"
    knowing = [each for each in alive if knows(each.workflows, document.workflow)]
    if not knowing:
        return f"no live worker knows workflow {document.workflow!r}"
    knowing = [each for each in knowing if document.workflow not in each.unable]
    if not knowing:
        return f"no live worker has the functions that {document.workflow!r} calls (see --allow-calls of buoy worker)"
    serving = [each for each in knowing if document.queue in each.queues]
    if not serving:
        return f"no live worker that knows workflow {document.workflow!r} serves queue {document.queue!r}"
    serving = [each for each in serving if each.env == document.env]
    if not serving:
        return _other_env(document, [each for each in knowing if document.queue in each.queues])
    have = ", ".join(sorted({repr(each.stack) for each in serving}))
    return (
        f"no live worker that knows workflow {document.workflow!r} takes runs of stack {document.stack!r}: "
        f"the live ones take stack {have}"
    )


def _other_env(document: Document, runners: Sequence[RunnerFacts]) -> str:
    """Workers are there, but of another env, whose runs only they may touch."""
    have = ", ".join(sorted({_env_text(each.env) for each in runners}))
    needed = _env_text(document.env)
    return f"no live worker that knows workflow {document.workflow!r} works in {needed}: the live ones work in {have}"


def _env_text(env: str | None) -> str:
    return "the default env" if env is None else f"env {env!r}"
