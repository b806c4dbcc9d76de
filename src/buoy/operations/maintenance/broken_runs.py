"""Broken runs: shows, copies and removes runs that cannot be read.

Invariants: a run is removed only if it certainly cannot be read, a person asked for it, and its bytes are in a file. If
the run changes in between, nothing is removed. The tombstone names the reason and the person.
"""

from __future__ import annotations

import os
import zipfile
from pathlib import Path

import msgspec

from buoy.core.diagnosis.document_drift import log_gone_text
from buoy.core.ids import RunId, check_run_id
from buoy.core.log.state import fold
from buoy.engine.absence import absent_run
from buoy.engine.client.client import Client
from buoy.engine.read_log import inbox_pages, read_log
from buoy.errors import BadInput, CorruptLog, Problem, WrongState
from buoy.ports.maintenance import Remains, Tombstone
from buoy.recovery.fleet import read_fleet

# In the file that keeps the bytes.
MANIFEST = "MANIFEST.json"


class Salvaged(msgspec.Struct, frozen=True, kw_only=True):
    """A broken run and the file that its bytes were copied to. `purged` False: it was only looked at."""

    run_id: RunId
    reason: str
    parts: int
    bytes: int
    file: str | None = None
    purged: bool = False


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """What the file is about."""

    run_id: RunId
    store: str
    reason: str
    digest: str
    copied_at: float
    by: str


async def why_broken(client: Client, run_id: RunId) -> str | None:
    """Why a run cannot be read; None if it can."""
    store = client.store
    try:
        record = await store.run(check_run_id(run_id))
        log = await read_log(store, run_id)
        if record is not None:
            fold(run_id, log)
            async for _ in inbox_pages(store, run_id):
                pass
    except CorruptLog as error:
        return str(error)
    except Problem:
        raise
    except Exception as error:  # noqa: BLE001 - whatever a stored log makes our own code raise, it cannot be read
        return f"{type(error).__name__}: {error}"
    if record is None and await store.archive.remains(run_id) is None:
        raise await absent_run(store, run_id)
    if record is None or (not log and record.envelope.orchestrator_task_id is not None):
        return log_gone_text(0 if record is None else record.document.head_seq)
    return None


async def purge_broken(client: Client, run_id: str, file: Path, *, dry_run: bool = False) -> Salvaged:
    """Copies all bytes of a run that cannot be read into `file`, then removes the run."""
    run = check_run_id(run_id)
    reason = await why_broken(client, run)
    if reason is None:
        raise WrongState(f"run {run} can be read, so it is not removed as broken; see `buoy why {run}`")
    found = await client.store.archive.remains(run)
    if found is None:
        raise await absent_run(client.store, run)
    await _check_free(client, run, found)
    salvaged = Salvaged(
        run_id=run, reason=reason, parts=len(found.parts), bytes=sum(len(part.data) for part in found.parts)
    )
    if dry_run:
        return salvaged
    now = float(await client.store.now())
    about = Manifest(
        run_id=run, store=client.store.name, reason=reason, digest=found.digest, copied_at=now, by=client.actor
    )
    write_remains(file, found, about)
    stone = Tombstone(
        run_id=run,
        workflow=found.workflow,
        status="broken",
        head_seq=found.head_seq,
        created_at=found.created_at,
        ended_at=now,
        purged_at=now,
        by=client.actor,
        broken=reason,
        digest=found.digest,
    )
    if not await client.store.archive.purge_broken(stone, found.digest):
        raise WrongState(f"run {run} has changed since it was copied to {file}; it was not removed, look at it again")
    return msgspec.structs.replace(salvaged, file=str(file), purged=True)


async def _check_free(client: Client, run_id: RunId, found: Remains) -> None:
    """A process that drives it may still write to it."""
    if found.holder is None:
        return
    holder = (await read_fleet(client.store, client.liveness)).get(found.holder)
    if not holder.gone:
        raise WrongState(f"run {run_id} is held by runner {holder.id} (process {holder.pid}), which may live; stop it")


def write_remains(file: Path, found: Remains, about: Manifest) -> None:
    """A new file that only this user can read, on the disk when this returns."""
    try:
        number = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with os.fdopen(number, "wb") as out:
            with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as packed:
                packed.writestr(MANIFEST, msgspec.json.format(msgspec.json.encode(about)))
                for part in found.parts:
                    packed.writestr(part.name, part.data)
            out.flush()
            os.fsync(number)
    except OSError as error:
        raise BadInput(
            f"the copy of the broken run cannot be written to {file}: {error.strerror}; name another file: --export"
        ) from error
