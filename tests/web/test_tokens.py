"""Tokens that the store keeps: made and revoked at the terminal, looked at by every server of the store."""

from __future__ import annotations

import asyncio
import http.client
import json
import sqlite3
from pathlib import Path
from typing import Any

import pytest
from starlette.requests import Request

from buoy.config import person, token_file
from buoy.operations.maintenance.tokens import create_token, list_tokens, revoke_token
from buoy.ports.rpc import CALLS, PATH, READS
from buoy.recovery.recover import recover_run
from buoy.web.auth import Grant, grant_of
from buoy.web.redaction import Redaction
from buoy.web.serve import ServeOptions
from buoy.wiring.app import open_client
from tests.patience import PATIENCE_S, until

from .live_server import TOKEN, LiveServer
from .served import Served, flow, is_in, waiting
from .test_serve import Place, place
from .test_streams import killed_worker

__all__ = ["place"]


async def code_of(served: Served, token: str, path: str = "/counts", method: str = "GET", body: Any = None) -> int:
    return (await served.ask(method, path, body, token=token))[0]


async def test_a_token_has_the_scopes_that_it_was_made_with_until_it_is_revoked(served: Served) -> None:
    assert await code_of(served, "warm-up") == 401
    async with open_client(f"sqlite:///{served.path}", actor=person()) as client:
        reader = await create_token(client, "dashboard", ["read"])
        runner = await create_token(client, "fleet", ["runner"])

        async def let_in() -> bool:
            return await code_of(served, reader.token) == 200

        await until(let_in, "the server to know the token")
        assert await code_of(served, reader.token, "/runs/x/cancel", "POST", {}) == 403
        assert await code_of(served, runner.token, "/runs/x/cancel", "POST", {}) == 404
        assert await code_of(served, runner.token, "/doctor", "POST", {}) == 403
        used = {each.name: each.used_age_s for each in (await list_tokens(client)).tokens}
        assert used["dashboard"] is not None
        await revoke_token(client, reader.id)

        async def refused() -> bool:
            return await code_of(served, reader.token) == 401

        await until(refused, "the server to notice the revocation")
        assert await code_of(served, runner.token) == 200


async def test_an_expired_token_is_refused(served: Served) -> None:
    async with open_client(f"sqlite:///{served.path}", actor=person()) as client:
        short = await create_token(client, "short", ["read"], expires_in_s=0.001)

        async def refused() -> bool:
            return await code_of(served, short.token) == 401

        await until(refused, "the token to expire")
        assert [each.state for each in (await list_tokens(client)).tokens] == ["expired"]


async def test_every_server_of_a_store_knows_its_tokens_and_writes_name_the_token(served: Served) -> None:
    async with served.worker() as app:
        made = await create_token(app, "ci", ["operate"])
        other = LiveServer(served.opened)
        first, served.server = served.server, other
        try:
            assert (
                await code_of(
                    served, made.token, "/runs", "POST", {"workflow": "flow", "input": {"n": 1}, "run_id": "a"}
                )
                == 200
            )
        finally:
            other.stop()
            served.server = first
        _, log = await served.ask("GET", "/runs/a/events?limit=1", token=made.token)
        assert log["events"][0]["body"]["by"] == "ci"


async def test_a_client_of_the_store_cannot_act_under_another_name(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with served.worker() as app:
        made = await create_token(app, "ci", ["runner"])
        monkeypatch.setenv("BUOY_TOKEN", made.token)
        async with open_client(served.server.url, actor="boss") as remote:
            await remote.start_as("a", flow, 4)
            await until(lambda: is_in(served, "a", "awaiting_input"), "the run to ask")
            await remote.answer("a", True)
            await until(lambda: is_in(served, "a", "waiting_signal"), "the run to have its answer")
        _, log = await served.ask("GET", "/runs/a/events")
        bodies = {each["body"]["type"]: each["body"] for each in log["events"]}
        assert bodies["workflow_created"]["by"] == bodies["interaction_response"]["by"] == "ci/boss"


async def test_requests_that_a_client_appends_to_a_log_bear_the_name_of_its_token(
    served: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with served.worker() as app:
        made = await create_token(app, "ci", ["runner"])
        await waiting(served, app, "a")
    await asyncio.to_thread(killed_worker, tmp_path)  # it leaves a run of its own in the same store
    monkeypatch.setenv("BUOY_TOKEN", made.token)
    async with open_client(served.server.url, actor="boss") as remote:
        # No worker lives, so the client appends what it asks for.
        assert (await remote.pause("a", "look")).done
        assert (await recover_run(remote, "left")).action == "resume"
    for run_id, kinds in (("a", ("claimed", "paused")), ("left", ("claimed",))):
        _, log = await served.ask("GET", f"/runs/{run_id}/events")
        last = [each["body"] for each in log["events"]][-len(kinds) :]
        assert [each["type"] for each in last] == list(kinds)
        assert last[0]["runner"] == "ci/boss" and last[-1].get("by", "ci/boss") == "ci/boss"
    _, audit = await served.ask("GET", "/recoveries")
    assert [(each["run_id"], each["actor"]) for each in audit["recoveries"]] == [("left", "ci/boss")]
    _, report = await served.ask("POST", "/doctor", {})
    assert "R2" not in report["counts"], "the documents say what the logs say"


async def test_the_store_has_the_hash_of_a_token_and_not_the_token(served: Served) -> None:
    async with open_client(f"sqlite:///{served.path}", actor=person()) as client:
        made = await create_token(client, "dashboard", ["read"])
        shown = json.dumps([str(each) for each in (await list_tokens(client)).tokens])
    rows = sqlite3.connect(served.path).execute("SELECT body FROM tokens").fetchall()
    assert len(rows) == 1 and made.token not in rows[0][0].decode() and made.token not in shown
    assert made.token.encode() not in served.path.read_bytes()


async def test_an_application_may_bring_a_scheme_of_its_own(served: Served) -> None:
    async def by_header(request: Request) -> Grant | None:
        return grant_of("proxy", ["read"]) if request.headers.get("x-user") == "ann" else None

    served.server.application.guard.authenticate = by_header
    assert await code_of(served, "anything") == 401


def test_tokens_are_made_listed_and_revoked_at_the_terminal(place: Place) -> None:
    store = ["--store", "sqlite:///runs.db"]
    place.serve()
    made = json.loads(place.buoy("token", "create", "ci", "--scope", "operate", "--expires-in", "1d", "--json", *store))
    assert made["token"].startswith("buoy_") and made["scopes"] == ["operate"]
    assert "ci" in place.buoy("token", "list", *store)
    assert made["token"] not in place.buoy("token", "list", "--json", *store)
    assert "no active runs" in place.buoy("ps", "--store", place.url)
    assert "no active runs" in place.buoy("ps", "--store", place.url, BUOY_TOKEN=made["token"])
    assert "scope `runner`" in place.buoy(
        "start", "flows.py:flow", "--arg", "n=1", "--store", place.url, code=5, BUOY_TOKEN=made["token"]
    )
    assert "through a server" in place.buoy("token", "list", "--store", place.url, code=2)
    assert "is revoked" in place.buoy("token", "revoke", made["id"], *store)
    assert "there is no token" in place.buoy("token", "revoke", "tok-none", *store, code=2)


@pytest.mark.parametrize("hook", ["nowhere:auth", "json:nothing"])
def test_a_hook_that_cannot_be_loaded_is_refused(place: Place, hook: str) -> None:
    assert "cannot be loaded" in place.buoy("serve", "--store", "sqlite:///runs.db", "--auth", hook, code=2)


def store_call(served: Served, name: str, token: str) -> int:
    connection = http.client.HTTPConnection("127.0.0.1", served.server.port, timeout=PATIENCE_S)
    try:
        connection.request("POST", PATH + name, b"{}", {"Authorization": f"Bearer {token}"})
        return connection.getresponse().status
    finally:
        connection.close()


@pytest.mark.parametrize("scope", ["read", "operate"])
def test_the_store_is_only_read_by_a_token_that_is_no_runners(served: Served, scope: str) -> None:
    served.server.tokens.add("looker", grant_of("looker", [scope]))
    every = {*CALLS, "hello", "changes", "no.such.call"}
    assert every > READS
    let_in = {name for name in every if store_call(served, name, "looker") != 403}
    assert let_in == READS
    assert store_call(served, "no.such.call", TOKEN) == 422


def test_a_server_that_hides_values_shows_its_store_to_runners_only(served: Served) -> None:
    served.server.application._redaction._secret = Redaction(("n",))._secret
    served.server.tokens.add("looker", grant_of("looker", ["read"]))
    assert {store_call(served, name, "looker") for name in READS} == {403}
    assert store_call(served, "hello", TOKEN) == 200


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "0.0.0.0", "::"])
def test_a_client_of_this_machine_finds_the_token_whatever_address_the_server_has(host: str) -> None:
    assert token_file(ServeOptions(host=host).local_place) == token_file("localhost:8642")


def test_servers_on_other_addresses_have_tokens_of_their_own() -> None:
    places = [ServeOptions(host=host).local_place for host in ("127.0.0.1", "::1", "10.0.0.0")]
    assert len({token_file(each) for each in places}) == 3
