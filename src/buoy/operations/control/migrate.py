"""Migrate: binds runs under way to code in which steps have other names."""

from __future__ import annotations

import msgspec

from buoy.engine.client.client import Client
from buoy.engine.client.migrate import Migration
from buoy.operations.control.rewind import spec_for
from buoy.recovery.sweep.resume_paused import Migrations, migrate_all

__all__ = ["Migrate", "Migration", "Migrations", "migrate_run", "migrate_workflow"]


class Migrate(msgspec.Struct, frozen=True, kw_only=True):
    """What was asked for. `version`: bind to this one; `file`: a spec file with the new names.

    `dedupe`: of a migration of one run; the same id again has no second effect.
    """

    renamed: dict[str, str]
    version: str | None = None
    file: str | None = None
    dry_run: bool = False
    dedupe: str | None = None


async def migrate_run(client: Client, run_id: str, order: Migrate) -> Migrations:
    """One run."""
    spec = None if order.file is None else await spec_for(client, run_id, order.file)
    one = await client.migrate(
        run_id, order.renamed, version=order.version, spec=spec, dry_run=order.dry_run, dedupe=order.dedupe
    )
    return Migrations(migrated=(one,))


async def migrate_workflow(client: Client, workflow: str, order: Migrate) -> Migrations:
    """All runs of that workflow that are paused because no code fits."""
    spec = None if order.file is None else await spec_for(client, None, order.file)
    return await migrate_all(client, workflow, order.renamed, version=order.version, spec=spec, dry_run=order.dry_run)
