"""Versions: lets runs go on that were paused because no fitting code was there, when other code appears.

Invariant: each version of the code gets one try: a run that it cannot drive is paused again, and the pause names it.
"""

from __future__ import annotations

from buoy.core.document import Document
from buoy.core.limits import RUNS_PAGE_MAX
from buoy.core.versions import may_fit
from buoy.engine.client import Client
from buoy.errors import UserError
from buoy.ports import RunQuery


async def go_on_with_this_code(client: Client) -> int:
    """Resumes what waits for code that this process has, or has not tried yet. The number of runs."""
    resumed = 0
    cursor: str | None = None
    while True:
        page = await client.runs(RunQuery(statuses=("paused",)), cursor, RUNS_PAGE_MAX)
        for record in page.runs:
            if _worth_a_try(client, record.document):
                try:
                    await client.resume(record.document.run_id)
                    resumed += 1
                except UserError:
                    continue  # somebody else was quicker
        cursor = page.cursor
        if cursor is None:
            return resumed


def _worth_a_try(client: Client, doc: Document) -> bool:
    workflow = client.registry.get(doc.workflow)
    return workflow is not None and may_fit(doc.pause, doc.version, workflow.version)
