"""Who may read a PostgreSQL store, and by which line: roles that only read, and TLS."""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
import subprocess
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psycopg
import pytest

import buoy
from buoy.errors import StoreUnusable, Unavailable
from buoy.ports.records import RunQuery
from tests.postgres_server import Server, fresh_schema, query, server
from tests.stores.test_postgres import checks, doubled

_SSL_REQUEST_BYTES = 8


def _completed(url: str) -> None:
    """A store with one run that has ended."""

    async def main() -> None:
        async with buoy.open(url, workflows=[doubled]) as app:
            assert await (await app.start_as("r", doubled, 1)).result() == 8

    asyncio.run(main())


def test_a_role_with_rights_on_the_views_alone_reads_them_and_nothing_else() -> None:
    name = fresh_schema()
    url = server().url(name)
    _completed(url)
    query(url, f"CREATE ROLE {name}_view LOGIN")
    query(url, f"GRANT USAGE ON SCHEMA {name} TO {name}_view")
    query(url, f"GRANT SELECT ON {name}.workflow_runs, {name}.events TO {name}_view")
    theirs = url.replace("user=postgres", f"user={name}_view")
    assert query(theirs, "SELECT workflow_run_id, status FROM {schema}.workflow_runs") == [("r", "completed")]
    assert query(theirs, "SELECT count(*) > 5 FROM {schema}.events") == [(True,)]
    for refused in ("SELECT 1 FROM {schema}.runs", "UPDATE {schema}.runs SET status = 'failed'"):
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            query(theirs, refused)


def test_a_role_that_only_reads_lists_runs_and_cannot_start_one() -> None:
    name = fresh_schema()
    url = server().url(name)
    _completed(url)
    query(url, f"CREATE ROLE {name}_read LOGIN")
    query(url, f"GRANT USAGE ON SCHEMA {name} TO {name}_read")
    query(url, f"GRANT SELECT ON ALL TABLES IN SCHEMA {name} TO {name}_read")

    async def main() -> None:
        async with buoy.connect(url.replace("user=postgres", f"user={name}_read")) as client:
            page = await client.runs(RunQuery())
            assert [record.document.run_id for record in page.runs] == ["r"]
            assert len(await client.store.events(page.runs[0].document.run_id)) > 5
            with pytest.raises(StoreUnusable, match="refuses this role"):
                await client.start_as("other", doubled, 1)

    asyncio.run(main())
    assert query(url, "SELECT count(*) FROM {schema}.runs") == [(1,)]
    assert asyncio.run(checks(url))["access"].text == "reads and writes"
    theirs = asyncio.run(checks(url.replace("user=postgres", f"user={name}_read")))["access"]
    assert theirs.ok and theirs.text.startswith("reads only: this role has no right to write")


class TlsDoor:
    """Speaks TLS as a server does, and hands the plain bytes to a server on a unix socket."""

    def __init__(self, inner: Server, certificate: Path, key: Path) -> None:
        self._inner = str(inner.folder / f".s.PGSQL.{inner.port}")
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._context.load_cert_chain(certificate, key)
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listening.getsockname()[1]
        self.versions: set[str | None] = set()
        threading.Thread(target=self._serve, daemon=True).start()

    def close(self) -> None:
        self._listening.close()

    def _serve(self) -> None:
        with suppress(OSError):
            while True:
                line, _ = self._listening.accept()
                threading.Thread(target=self._speak, args=(line,), daemon=True).start()

    def _speak(self, line: socket.socket) -> None:
        with suppress(OSError):
            line.recv(_SSL_REQUEST_BYTES, socket.MSG_WAITALL)
            line.sendall(b"S")
            outer = self._context.wrap_socket(line, server_side=True)
            self.versions.add(outer.version())
            inner = socket.socket(socket.AF_UNIX)
            inner.connect(self._inner)
            threading.Thread(target=_pump, args=(inner, outer), daemon=True).start()
            _pump(outer, inner)


def _pump(source: socket.socket, target: socket.socket) -> None:
    with suppress(OSError):
        while data := source.recv(65_536):
            target.sendall(data)
    for each in (source, target):
        with suppress(OSError):
            each.shutdown(socket.SHUT_RDWR)


@pytest.fixture
def door(tmp_path: Path) -> Iterator[tuple[TlsDoor, Path]]:
    key, certificate = tmp_path / "key.pem", tmp_path / "certificate.pem"
    words = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost"]
    words += ["-addext", "subjectAltName=DNS:localhost", "-keyout", str(key), "-out", str(certificate)]
    subprocess.run(words, check=True, capture_output=True, env={**os.environ, "RANDFILE": str(tmp_path / "rnd")})
    made = TlsDoor(server(), certificate, key)
    yield made, certificate
    made.close()


def test_tls_options_are_libpq_s(door: tuple[TlsDoor, Path]) -> None:
    """The wheel's server has no TLS, so a door before it speaks TLS; the client side is real."""
    tls, certificate = door
    name = fresh_schema()
    url = f"postgresql://postgres@localhost:{tls.port}/postgres?schema={name}&hostaddr=127.0.0.1&gssencmode=disable"
    trusted = f"{url}&sslmode=verify-full&sslrootcert={certificate}"
    _completed(trusted)
    assert tls.versions and None not in tls.versions
    assert query(server().url(name), "SELECT count(*) FROM {schema}.runs") == [(1,)]
    for wrong in (
        f"{url}&sslmode=verify-full&sslrootcert={certificate}.missing",
        trusted.replace("localhost", "elsewhere"),
        f"{server().url(name)}&host=127.0.0.1&port={tls.port}&sslmode=disable",
    ):
        with pytest.raises((Unavailable, StoreUnusable)):
            _completed(wrong)


def test_a_server_without_tls_is_refused_where_tls_is_required(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a unix socket libpq ignores the option, so the server is asked by its refusal on a TCP port."""
    with socket.create_server(("127.0.0.1", 0)) as plain:

        def refuse() -> None:
            line, _ = plain.accept()
            line.recv(_SSL_REQUEST_BYTES, socket.MSG_WAITALL)
            line.sendall(b"N")

        threading.Thread(target=refuse, daemon=True).start()
        monkeypatch.setenv("PGSSLMODE", "require")
        with pytest.raises((Unavailable, StoreUnusable), match="SSL"):
            _completed(f"postgresql://postgres@127.0.0.1:{plain.getsockname()[1]}/postgres?gssencmode=disable")
