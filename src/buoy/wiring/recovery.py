"""Recovery for programs: `buoy.scan`, `buoy.sweep`, `buoy.reconcile` and `buoy.recover`.

Each takes what the caller has at hand: a client (of `buoy.open` or `buoy.connect`), the URL of a store, or nothing for
the configured store. They are coroutines; a program without a loop writes `asyncio.run(buoy.sweep(url))`.

Invariants: the stack and env of the client bound what is touched, unless the caller says otherwise. A registry with an
unknown policy, or with a workflow under another name than its own, is refused before anything is looked at.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from enum import Enum
from typing import Any, Final, Literal, TypeAlias

from buoy.core.durations import Duration, seconds
from buoy.core.limits import STALE_AFTER_S
from buoy.core.log.document import Document
from buoy.core.remedy.policy import POLICIES, Lookup
from buoy.engine.authoring.definitions import Workflow
from buoy.engine.client.client import Client
from buoy.engine.client.run import Run
from buoy.errors import BadInput
from buoy.recovery.recover import Recovery, recover_run
from buoy.recovery.sweep import reconcile as reconciling
from buoy.recovery.sweep import scan as scanning
from buoy.recovery.sweep import sweep as sweeping
from buoy.recovery.sweep.found import Report
from buoy.recovery.sweep.reconcile import Reconciled
from buoy.recovery.sweep.scan import Scan
from buoy.recovery.sweep.scope import Scope
from buoy.recovery.sweep.tally import Swept
from buoy.recovery.sweep.task_check import TaskChecker
from buoy.wiring.app import open_client


class Own(Enum):
    """The stack or env of the client."""

    OWN = "the client's own"

    def __repr__(self) -> str:
        return "OWN"


OWN: Final = Own.OWN
Named: TypeAlias = "str | Literal[Own.OWN] | None"
# Workflow name to policy, or to the workflow that declares one.
PolicyMap: TypeAlias = Mapping[str, "str | Workflow[..., Any]"]
Resolve: TypeAlias = Callable[[Document], "str | None"]


async def scan(
    on: Client | str | None = None,
    *,
    stale_after: Duration = STALE_AFTER_S,
    registry: PolicyMap | None = None,
    resolve_policy: Resolve | None = None,
    task_checker: TaskChecker | None = None,
    report: Report | None = None,
    stack: Named = OWN,
    env: Named = OWN,
    adopt: bool = False,
) -> Scan:
    """Finds runs in trouble and changes nothing. The caller recovers them, as it likes.

        async def requeue(found: buoy.Found) -> None:
            await my_queue.submit("orchestrate", found.run_id, key=found.task_id)

        seen = await buoy.scan("sqlite:///runs.db", report=requeue)

    `report` gets each run as soon as it is found; if it fails, the other runs still get theirs, and `troubles` says so.
    `task_checker` asks a queue of your own whether a run's task is alive there: True, or False or None if it is not.
    The other options are those of `sweep`.
    """
    lookup = _lookup(registry, resolve_policy)
    async with _client(on) as client:
        options = scanning.ScanOptions(
            scope=_scope(client, stack, env),
            stale_after_s=seconds(stale_after, "stale_after"),
            adopt=adopt,
            policy=lookup,
        )
        return await scanning.scan(client, options, report=report, task_checker=task_checker)


async def sweep(
    on: Client | str | None = None,
    *,
    stale_after: Duration = STALE_AFTER_S,
    registry: PolicyMap | None = None,
    resolve_policy: Resolve | None = None,
    stack: Named = OWN,
    env: Named = OWN,
    adopt: bool = False,
    limit: int | None = None,
    rate: float | None = None,
    dry_run: bool = False,
) -> Swept:
    """Finds runs that were left behind and brings them back. Gives the counts: `restarted`, `failed`, `skipped`...

        await buoy.sweep(app)
        await buoy.sweep(app, registry={"checkout": checkout, "report": "fail"})
        await buoy.sweep(app, resolve_policy=lambda document: "restart")

    A run's policy (resume, restart, fail or hold) is that of `resolve_policy`; where that gives None, of `registry`
    (workflow name to policy, or to the workflow); then of the workflows that `on` knows; then the one that the run was
    started with. `stale_after`: look closely at runs that have not moved for so long. `stack`: None means all stacks.
    `env`: None means the default env; envs never mix. `limit` and `rate`: recoveries at most, and per second.
    """
    lookup = _lookup(registry, resolve_policy)
    async with _client(on) as client:
        options = sweeping.SweepOptions(
            scope=_scope(client, stack, env),
            stale_after_s=seconds(stale_after, "stale_after"),
            adopt=adopt,
            policy=lookup,
            limit=limit,
            rate=rate,
            dry_run=dry_run,
        )
        return await sweeping.sweep(client, options)


async def reconcile(
    on: Client | str | None = None, *, stack: Named = OWN, env: Named = OWN, dry_run: bool = False
) -> Reconciled:
    """Gives runs the wake-ups that were lost: the end of a child, a time that has passed, a message.

        woken = await buoy.reconcile(app)
        print(woken.replayed, woken.skipped)

    Call it after `sweep`. `stack` and `env` are those of `sweep`.
    """
    async with _client(on) as client:
        return await reconciling.reconcile(client, _scope(client, stack, env), dry_run=dry_run)


async def recover(
    run: str | Run[Any],
    on: Client | str | None = None,
    *,
    registry: PolicyMap | None = None,
    resolve_policy: Resolve | None = None,
    stale_after: Duration | None = None,
    stream_open: bool | None = None,
    adopt: bool = False,
    dry_run: bool = False,
) -> Recovery:
    """Checks one run and brings it back if something is wrong: `needed`, `new_branch_id`, `reason`, `error`.

        done = await buoy.recover("order-7", app)
        if done.needed and done.error:
            raise RuntimeError(done.error)

    Of a handle (`app.get(...)`, `app.start(...)`) the client is known. `stream_open`: whether a client watches the run
    live, if you know. The other options are those of `sweep`.
    """
    lookup = _lookup(registry, resolve_policy)
    stale_after_s = None if stale_after is None else seconds(stale_after, "stale_after")
    own = run.client if isinstance(run, Run) and on is None else on
    async with _client(own) as client:
        return await recover_run(
            client,
            run.id if isinstance(run, Run) else run,
            dry_run=dry_run,
            policy=lookup,
            adopt=adopt,
            stale_after_s=stale_after_s,
            stream_open=stream_open,
        )


@asynccontextmanager
async def _client(on: Client | str | None) -> AsyncIterator[Client]:
    """The caller's client, or one for as long as it is needed."""
    if isinstance(on, Client):
        yield on
    elif on is None or isinstance(on, str):
        async with open_client(on) as client:
            yield client
    else:
        raise BadInput(f"neither a client nor the URL of a store: {on!r}; use buoy.connect(url), or the URL itself")


def _scope(client: Client, stack: Named, env: Named) -> Scope:
    return Scope(client.stack if stack is OWN else stack, client.env if env is OWN else env)


def _lookup(registry: PolicyMap | None, resolve: Resolve | None) -> Lookup | None:
    """The caller's word on policies, its function first. None: this process and the runs say it themselves."""
    known = {name: _policy(name, each) for name, each in (registry or {}).items()}
    if resolve is None:
        return (lambda document: known.get(document.workflow)) if known else None

    def lookup(document: Document) -> str | None:
        found = resolve(document)
        return known.get(document.workflow) if found is None else found

    return lookup


def _policy(name: str, given: str | Workflow[..., Any]) -> str:
    if isinstance(given, Workflow):
        if given.name != name:
            raise BadInput(f"registry names {name!r} for workflow {given.name!r}; use the workflow's own name")
        return given.recovery
    if given not in POLICIES:
        raise BadInput(f"unknown policy for {name!r}: {given!r}; choose {', '.join(POLICIES)}, or give the workflow")
    return given
