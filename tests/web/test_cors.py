"""Pages of other origins: refused by default; named origins may call the API with a token and without cookies."""

from __future__ import annotations

from pathlib import Path

import httpx
import pytest

import buoy
from buoy.host.clock import SystemClock
from buoy.stores.sqlite.store import SqliteStore
from buoy.web.app import Application
from buoy.web.auth import KnownTokens, grant_of
from buoy.web.backend import Backend
from buoy.web.cors import cross_origin
from buoy.web.routes import API
from buoy.wiring.server import ServedStore

HERE, THERE = "https://app.example.com", "https://evil.example.com"
TOKEN = {"Authorization": "Bearer buoy_t"}
PREFLIGHT = {"Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "authorization,content-type"}


def client_of(folder: Path, *origins: str) -> tuple[httpx.AsyncClient, Backend]:
    async def opened() -> ServedStore:
        clock = SystemClock()
        return ServedStore(await SqliteStore.open(folder / "runs.db", clock=clock, own_clock=clock), clock)

    tokens = KnownTokens()
    tokens.add("buoy_t", grant_of("t", ["admin"]))
    backend = Backend(opened, sweeps=False)
    app = Application(backend, tokens, cors_origins=origins).build()
    return httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://x"), backend


async def test_no_answer_has_a_cors_header_unless_an_origin_is_named(tmp_path: Path) -> None:
    client, backend = client_of(tmp_path)
    async with client:
        plain = await client.get(f"{API}/counts", headers={**TOKEN, "Origin": HERE})
        preflight = await client.options(f"{API}/counts", headers={**PREFLIGHT, "Origin": HERE})
    await backend.close()
    assert (plain.status_code, preflight.status_code) == (200, 405)
    for answer in (plain, preflight):
        assert not [name for name in answer.headers if name.startswith("access-control")]


async def test_a_named_origin_may_ask_with_a_token_and_no_other_may(tmp_path: Path) -> None:
    client, backend = client_of(tmp_path, HERE)
    async with client:
        preflight = await client.options(f"{API}/runs", headers={**PREFLIGHT, "Origin": HERE})
        assert preflight.status_code == 200 and preflight.headers["access-control-allow-origin"] == HERE
        assert {"GET", "POST", "PUT", "DELETE"} <= set(preflight.headers["access-control-allow-methods"].split(", "))
        assert "authorization" in preflight.headers["access-control-allow-headers"].lower()
        plain = await client.get(f"{API}/counts", headers={**TOKEN, "Origin": HERE})
        assert plain.status_code == 200 and plain.headers["access-control-allow-origin"] == HERE
        assert "Origin" in plain.headers["vary"]
        # A refusal can be read by the page, too.
        refused = await client.get(f"{API}/counts", headers={"Origin": HERE})
        assert (refused.status_code, refused.headers["access-control-allow-origin"]) == (401, HERE)
        for other in (THERE, HERE + ".evil.com", "http://app.example.com", "null", HERE + ":8443"):
            asked = await client.options(f"{API}/runs", headers={**PREFLIGHT, "Origin": other})
            assert asked.status_code == 400 and "access-control-allow-origin" not in asked.headers
            got = await client.get(f"{API}/counts", headers={**TOKEN, "Origin": other})
            assert "access-control-allow-origin" not in got.headers
        for answer in (preflight, plain):
            assert "access-control-allow-credentials" not in answer.headers
    await backend.close()


@pytest.mark.parametrize(
    "origin",
    ["*", "null", "app.example.com", "https://*.example.com", HERE + "/", HERE + "/path", "HTTPS://A", "ftp://a", ""],
)
def test_what_is_no_exact_origin_is_refused(origin: str) -> None:
    with pytest.raises(buoy.BadInput, match="invalid origin"):
        cross_origin((HERE, origin))
