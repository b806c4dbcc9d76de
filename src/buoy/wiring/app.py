"""`buoy.open` and `buoy.connect`: a store with a runner in this process, or without one."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import Any

from buoy.config import (
    configured_env,
    configured_stack,
    configured_store,
)
from buoy.engine.authoring.calls import check_workflow
from buoy.engine.authoring.definitions import Registry, Step, Workflow
from buoy.engine.client.client import Client
from buoy.engine.process.runner_options import RunnerOptions
from buoy.errors import BadInput
from buoy.host.clock import SystemClock
from buoy.host.ids import SystemIds
from buoy.wiring.inspection import liveness_of, open_configured
from buoy.wiring.local_worker import open_worker


@asynccontextmanager
async def open_app(
    url: str | None = None,
    *,
    workflows: Iterable[Workflow[..., Any] | Step[..., Any]] = (),
    queues: tuple[str, ...] = ("default",),
    options: RunnerOptions | None = None,
    specs: bool = False,
) -> AsyncIterator[Client]:
    """A store with a runner in this process. Runs of `workflows` that were left behind are taken over.

    A step with a queue may stand among `workflows` too: then it is executed here, if `queues` has its queue.
    `specs`: also runs of all stored specs; their commands then run here.

    Inside, `await app.start(workflow, ...)` starts runs. At the end runs are given back as at a graceful stop.
    """
    registry = Registry()
    registry.takes_specs = specs
    for each in (workflows,) if isinstance(workflows, Step | Workflow) else workflows:
        registry.add(_driven(each))
    async with open_worker(url, registry, queues=queues, options=options) as worker:
        try:
            await worker.start()
            yield worker.client()
        finally:
            await worker.stop()


def _driven(each: Workflow[..., Any] | Step[..., Any]) -> Workflow[..., Any]:
    """The workflow that a runner drives for it."""
    if not isinstance(each, Step):
        check_workflow(each, "workflows=")
        return each
    if each.queue is None:
        raise BadInput(
            f"workflows= takes workflows, and steps that have a queue: {each!r}; the steps that a workflow calls need "
            "not be named, or write @buoy.step(queue=...)"
        )
    return each.remote


@asynccontextmanager
async def open_client(url: str | None = None, *, actor: str = "client") -> AsyncIterator[Client]:
    """A store without a runner: to start runs for workers, to look at them and to send them requests."""
    clock = SystemClock()
    store = await open_configured(configured_store() if url is None else url, clock)
    try:
        yield Client(
            store,
            Registry(),
            clock=clock,
            ids=SystemIds(),
            liveness=liveness_of(store),
            actor=actor,
            stack=configured_stack(),
            env=configured_env(),
        )
    finally:
        await store.close()
