"""Wiring of a worker of this machine: its store, clock, threads, shell, and the proof of its death."""

from __future__ import annotations

import logging
import os
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial

import msgspec

from buoy.config import (
    allocation_variables,
    buoy_version,
    configured_env,
    configured_stack,
    configured_store,
    is_server_url,
    log_folder,
    spool_folder,
)
from buoy.core.batch.node_list import allocated_nodes
from buoy.core.batch.resources import Capacity
from buoy.core.ids import RunnerId
from buoy.engine.authoring.definitions import Registry
from buoy.engine.batch.lot import LotWorkflow
from buoy.engine.process.runner import Runner
from buoy.engine.process.runner_options import RunnerOptions
from buoy.engine.services.room import Room
from buoy.engine.services.unsent import Unsent, send_left_behind
from buoy.errors import Problem, Unavailable
from buoy.host.capacity import gpu_devices, machine_capacity
from buoy.host.clock import SystemClock
from buoy.host.ids import SystemIds
from buoy.host.jobs.shell import JobShell
from buoy.host.jobs.spool import FileSpool
from buoy.host.otel import otel_spans
from buoy.host.processes import boot_id, host, pid_namespace, process_started
from buoy.host.shell.shell import GuardedShell
from buoy.host.spool import SpoolFile, left_behind, taken
from buoy.host.threads import SystemThreads
from buoy.operations.slurm.places import allocation_place
from buoy.ports.batch import AllocationPlace
from buoy.ports.records import Proof, RunnerInfo, Write
from buoy.ports.store import Store
from buoy.wiring.inspection import liveness_of, open_configured
from buoy.wiring.worker import Worker, WorkerPorts, assemble_worker

_LOG = logging.getLogger("buoy")


def runner_info(
    ids: SystemIds, role: str, *, queues: tuple[str, ...] = (), registry: Registry | None = None,
    proof: Proof | None = None, place: AllocationPlace | None = None,
) -> RunnerInfo:  # fmt: skip
    """The identity of this process, and how its end is proven: in an allocation by the scheduler, unless a lock
    does."""
    pid = os.getpid()
    return RunnerInfo(
        id=RunnerId(ids.new("runner-" if role != "sweeper" else "sweeper-")),
        host=host(),
        boot_id=boot_id(),
        pid_namespace=pid_namespace(),
        pid=pid,
        process_started=process_started(pid),
        nonce=ids.nonce(),
        buoy_version=buoy_version(),
        stack=configured_stack(),
        env=configured_env(),
        queues=queues,
        **({} if registry is None else registry.advertised()),
        role=role,
        proof=proof if place is None or proof == "lock" else "allocation",
        allocation=place,
    )


def host_worker(
    store: Store, registry: Registry, *, role: str, queues: tuple[str, ...], options: RunnerOptions,
    place: AllocationPlace | None = None,
) -> Worker:  # fmt: skip
    """A worker of this machine on that store."""
    clock, ids, liveness = SystemClock(), SystemIds(), liveness_of(store)
    shell = GuardedShell(log_folder(store.name), clock)
    ports = WorkerPorts(store, clock, ids, liveness, SystemThreads(), store.reopen, shell)
    info = runner_info(ids, role, proof=liveness.proof, queues=queues, registry=registry, place=place)
    worker = assemble_worker(ports, registry, info, options=options)
    worker.runner.spans = otel_spans()
    return worker


@asynccontextmanager
async def open_worker(
    url: str | None,
    registry: Registry,
    *,
    role: str = "worker",
    queues: tuple[str, ...] = ("default",),
    options: RunnerOptions | None = None,
    allocation: AllocationPlace | None = None,
) -> AsyncIterator[Worker]:
    """A worker that the caller starts and stops. At the end its store is closed."""
    place = configured_store() if url is None else url
    store = await open_configured(place, SystemClock())
    spool: SpoolFile | None = None
    try:
        if is_server_url(place):
            await send_unsent(store)
        chosen = options or RunnerOptions()
        worker = host_worker(store, registry, role=role, queues=queues, options=chosen, place=allocation)
        if is_server_url(place):
            spool = SpoolFile(spool_folder(store.name), worker.info.id)
            waiting = partial(_waiting_writes, worker.runner)
            worker.runner.journal.unsent = Unsent(spool, worker.runner.note, waiting)
        yield worker
    finally:
        if spool is not None:
            spool.close()
        await store.close()


def _waiting_writes(runner: Runner) -> list[Write]:
    ledgers = [execution.ledger for execution in runner.executions.values()]
    return [ledger.waiting() for ledger in ledgers if ledger.pending]


async def send_unsent(store: Store) -> None:
    """Commits what dead processes of this machine could not send to that server. A file with refused writes stays."""
    for path in left_behind(spool_folder(store.name)):
        try:
            with taken(path) as writes:
                if writes is not None:
                    await send_left_behind(store, writes)
        except Unavailable:
            raise
        except Problem as error:
            _LOG.warning("unsent writes stay in %s: %s", path, error)


@asynccontextmanager
async def open_job_runner(
    url: str | None, capacity: Callable[[Capacity], Capacity], nodes: Sequence[str] | None, *, options: RunnerOptions
) -> AsyncIterator[tuple[Worker, Room]]:
    """A worker that takes lots of jobs. `capacity` gets what this machine has, and says what of it is for jobs.

    `nodes`: machines that jobs may use from here; None: those of the allocation, if this process is alone in it.
    """
    registry = Registry()
    registry.add(LotWorkflow())
    variables = allocation_variables()
    place, machines = allocation_place(variables), allocated_nodes(variables) if nodes is None else nodes
    async with open_worker(url, registry, queues=(), options=options, allocation=place) as worker:
        own = variables.get("SLURMD_NODENAME", worker.info.host)
        names = (own, *(each for each in machines if each != own))
        found = msgspec.structs.replace(capacity(machine_capacity()), nodes=len(names))
        room = Room(found, worker.clock, worker.info.host, gpu_devices(), names)
        room.allocation = "" if place is None else place.name
        name = worker.runner.store.name
        shell = JobShell(log_folder(name), name)
        room.on_close.append(shell.hold)
        spool = FileSpool(log_folder(name), name, worker.runner.note)
        worker.runner.specs.kit.serve_jobs(room, shell, spool)
        try:
            yield worker, room
        finally:
            await shell.close()
            await spool.close()


def open_driver(url: str | None, *, calls: tuple[str, ...] = ()) -> AbstractAsyncContextManager[Worker]:
    """A worker that drives only the runs that it is given. It serves no queue and registers no workflows."""
    return open_worker(url, Registry(), role="client", queues=(), options=RunnerOptions(calls=calls))
