"""Resume paused: resumes runs that were paused because no fitting code was there, when other code appears.

Invariants: each version of the code gets one try: a run that it cannot drive is paused again, and the pause names it. A
run whose input did not fit is resumed only by a process whose code takes that input. A run of a spec whose definition
was gone continues when the definition is there again.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping

import msgspec

from buoy.core.ids import RunId
from buoy.core.limits import RUNS_PAGE_MAX, UNFIT_RUNS_MAX
from buoy.core.log.document import DOCUMENT_VERSION, Document
from buoy.core.log.events import WorkflowCreated
from buoy.core.log.pause import Pause
from buoy.core.log.renames import occurs
from buoy.core.log.state import fold
from buoy.core.remedy.version_fit import worth_retrying
from buoy.core.spec.model import is_spec
from buoy.engine.client.client import Client
from buoy.engine.client.migrate import Migration
from buoy.engine.read_log import read_log
from buoy.engine.spec.workflow import SpecWorkflow
from buoy.errors import UserError
from buoy.ports.records import RunQuery


async def go_on_with_this_code(client: Client) -> int:
    """Resumes runs of this scope that wait for code which this process has. Returns their number."""
    resumed = 0
    async for doc in _paused(client, reasons=("version", "input")):
        if await _worth_a_try(client, doc):
            try:
                workflow = client.registry.get(doc.workflow)
                await client.resume(doc.run_id, version=None if workflow is None else workflow.version)
                resumed += 1
            except UserError:
                continue  # another process was quicker
    return resumed


async def _paused(
    client: Client, workflow: str | None = None, reasons: tuple[str, ...] = ("version",)
) -> AsyncIterator[Document]:
    """Those of the client's stack and env."""
    cursor: str | None = None
    # Without a workflow: for each sweep of each worker.
    query = RunQuery(("paused",), workflow, stack=client.stack, env=client.env, hinted=workflow is None)
    while True:
        page = await client.runs(query, cursor, RUNS_PAGE_MAX)
        for record in page.runs:
            if record.document.pause is not None and record.document.pause.reason in reasons:
                yield record.document
        cursor = page.cursor
        if cursor is None:
            return


async def _worth_a_try(client: Client, doc: Document) -> bool:
    if doc.pause is not None and doc.pause.reason == "input":
        return await takes_input(client, doc)
    if is_spec(doc.workflow):
        return client.registry.takes_specs and await client.store.definition(doc.version) is not None
    workflow = client.registry.get(doc.workflow)
    return workflow is not None and worth_retrying(await _pause(client, doc), doc.version, workflow.version)


async def takes_input(client: Client, doc: Document) -> bool:
    """Whether this process has code that takes the input of the run."""
    workflow = client.registry.get(doc.workflow)
    if workflow is None or is_spec(doc.workflow) or doc.run_id in workflow.arguments.unfit_runs:
        return False
    first = await client.store.events(doc.run_id, limit=1)
    created = first[0].body if first else None
    if isinstance(created, WorkflowCreated) and workflow.arguments.fit(created.input):
        return True
    if len(workflow.arguments.unfit_runs) >= UNFIT_RUNS_MAX:
        workflow.arguments.unfit_runs.clear()
    workflow.arguments.unfit_runs.add(doc.run_id)
    return False


async def _pause(client: Client, doc: Document) -> Pause | None:
    """Why it is paused. A document of an earlier form does not say which code was tried, but the log does."""
    if doc.v >= DOCUMENT_VERSION:
        return doc.pause
    return fold(doc.run_id, await read_log(client.store, doc.run_id)).pause


class Left(msgspec.Struct, frozen=True):
    """A run that was not migrated, and why."""

    run_id: RunId
    reason: str


class Migrations(msgspec.Struct, frozen=True, kw_only=True):
    """What became of all paused runs of a workflow."""

    migrated: tuple[Migration, ...] = ()
    left: tuple[Left, ...] = ()


async def migrate_all(
    client: Client,
    workflow: str,
    renamed: Mapping[str, str],
    *,
    version: str | None = None,
    spec: SpecWorkflow | None = None,
    dry_run: bool = False,
) -> Migrations:
    """Migrates every run of that workflow that is paused because the code does not fit. Each is a commit of its own."""
    done, left = list[Migration](), list[Left]()
    async for doc in _paused(client, workflow):
        try:
            here = await _names_in(client, doc.run_id, renamed)
            if not here and spec is None:
                left.append(Left(doc.run_id, "none of these names is in its log"))
                continue
            done.append(await client.migrate(doc.run_id, here, version=version, spec=spec, dry_run=dry_run))
        except UserError as error:
            left.append(Left(doc.run_id, str(error)))
    return Migrations(migrated=tuple(done), left=tuple(left))


async def _names_in(client: Client, run_id: RunId, renamed: Mapping[str, str]) -> dict[str, str]:
    """Those of the names that this run has: not every run came to every step."""
    log = await read_log(client.store, run_id)
    return {old: new for old, new in renamed.items() if occurs(log, old)}
