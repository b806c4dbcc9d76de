"""The PostgreSQL store works through a real PgBouncer in transaction mode, where no session belongs to one client."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

import buoy
from buoy.host.clock import SystemClock
from buoy.stores.postgres.appends import PREPARE_AFTER
from buoy.stores.postgres.store import PostgresStore
from tests.patience import wait_until
from tests.postgres_server import UNPRIVILEGED, fresh_schema, server

PROGRAM = shutil.which("pgbouncer", path=f"{os.environ.get('PATH', '')}:/usr/sbin")


@pytest.fixture
def pooler() -> Iterator[Path]:
    """The folder of the socket of a pooler in transaction mode, before the server of the tests."""
    if PROGRAM is None:
        assert not os.environ.get("CI"), "CI tests with a pooler: apt-get install pgbouncer"
        pytest.skip("pgbouncer is not installed: apt-get install pgbouncer")
    folder = Path(tempfile.mkdtemp(prefix="buoy-pool-"))
    settings = folder / "pgbouncer.ini"
    settings.write_text(
        f"[databases]\npostgres = host={server().folder} dbname=postgres user=postgres\n"
        f"[pgbouncer]\npool_mode = transaction\nlisten_addr =\nunix_socket_dir = {folder}\nlisten_port = 6432\n"
        "auth_type = any\ndefault_pool_size = 3\n"
        "ignore_startup_parameters = extra_float_digits\n"
    )
    user = UNPRIVILEGED if os.geteuid() == 0 else None
    if user is not None:
        for path in (folder, settings):
            os.chown(path, user, user)
    with (folder / "log").open("w") as log:
        process = subprocess.Popen(
            [PROGRAM, str(settings)], user=user, group=user, stdout=log, stderr=log, stdin=subprocess.DEVNULL
        )
    try:
        wait_until(lambda: (folder / ".s.PGSQL.6432").exists(), "the pooler")
        yield folder
    finally:
        process.terminate()
        process.wait()
        shutil.rmtree(folder, ignore_errors=True)


@buoy.step
async def double(number: int) -> int:
    return 2 * number


@buoy.workflow
async def asked(number: int) -> int:
    for _ in range(3):
        number = await double(number)
    await buoy.wait_signal("go")
    return number


@buoy.workflow
async def many(count: int) -> int:
    for number in range(count):
        await double(number)
    return count


def test_runs_signals_and_timers_work_through_a_transaction_pooler(pooler: Path) -> None:
    url = f"postgresql:///postgres?host={pooler}&port=6432&user=postgres&schema={fresh_schema()}"

    async def main() -> None:
        store = await PostgresStore.open(url, clock=SystemClock())
        assert store._opened.pooled, "it is seen, so that nothing listens"
        await store.close()
        async with buoy.open(url, workflows=[asked]) as app, buoy.connect(url) as other:
            runs = await asyncio.gather(*(app.start(asked, number) for number in range(40)))
            for run in runs:
                await other.signal(run.id, "go")
            assert [await run.result() for run in runs] == [8 * number for number in range(40)]

    asyncio.run(main())


def test_nothing_is_prepared_behind_a_pooler(pooler: Path) -> None:
    url = f"postgresql:///postgres?host={pooler}&port=6432&user=postgres&schema={fresh_schema()}"

    async def main() -> None:
        async with buoy.open(url, workflows=[many]) as app:
            assert await (await app.start(many, 3 * PREPARE_AFTER)).result() == 3 * PREPARE_AFTER
        # The sessions of the pooler stay open and serve this one, too.
        with psycopg.connect(url.partition("&schema")[0], autocommit=True) as session:
            assert session.execute("SELECT count(*) FROM pg_prepared_statements").fetchone() == (0,)

    asyncio.run(main())
