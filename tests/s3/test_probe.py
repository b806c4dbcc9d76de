"""The probe: a bucket that breaks a guarantee is refused by its name; an honest one is probed once."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Iterator

import pytest

from buoy.errors import StoreUnusable, Unavailable
from buoy.host.clock import SystemClock
from buoy.stores.objects.s3_store import open_s3

from .proxy import PASS, Act, Plan, Proxy, Request, proxy
from .seaweed import BUCKET, Seaweed


@pytest.fixture(scope="module")
def between(server: Seaweed) -> Iterator[Proxy]:
    with proxy(server) as running:
        yield running


def _open_and_check(url: str) -> list[tuple[str, bool]]:
    async def play() -> list[tuple[str, bool]]:
        store = await open_s3(url, SystemClock())
        try:
            return [(check.name, check.ok) for check in await store.integrity.checks()]
        finally:
            await store.close()

    return asyncio.run(play())


def ignores_creates(request: Request) -> Act:
    return Act(unconditional=True) if "if-none-match" in request.headers and request.kind == "PUT" else PASS


def ignores_replaces(request: Request) -> Act:
    return Act(unconditional=True) if "if-match" in request.headers else PASS


def two_win(part: str) -> Plan:
    """Conditions hold for one writer at a time; of many at once two get through."""
    seen: dict[str, int] = {}

    def plan(request: Request) -> Act:
        if request.kind != "PUT" or part not in request.key or not request.conditional:
            return PASS
        # The first write of a replaced key is its creation.
        seen[request.key] = seen.get(request.key, 0) + 1
        return Act(unconditional=True) if seen[request.key] in (2, 3) else PASS

    return plan


def lists_late(request: Request) -> Act:
    def hide(answer: bytes) -> bytes:
        return re.sub(
            rb"<Contents>(?:(?!</Contents>).)*list/4(?:(?!</Contents>).)*</Contents>", b"", answer, flags=re.S
        )

    return Act(body=hide) if request.kind == "LIST" else PASS


def reads_late(request: Request) -> Act:
    return Act(status=404, code="NoSuchKey") if request.kind == "GET" and request.key.endswith("create") else PASS


LIES: list[tuple[Callable[[], Plan], str]] = [
    (lambda: ignores_creates, "create-if-absent:"),
    (lambda: ignores_replaces, "compare-and-swap:"),
    (lambda: two_win("creators"), "create-if-absent under concurrency:"),
    (lambda: two_win("replacers"), "compare-and-swap under concurrency:"),
    (lambda: lists_late, "list-after-write:"),
    (lambda: reads_late, "read-after-write:"),
]


@pytest.mark.parametrize(("lie", "guarantee"), LIES, ids=[each[1].strip(":") for each in LIES])
def test_a_bucket_that_lies_is_refused_by_the_name_of_the_guarantee(
    between: Proxy, prefix: str, lie: Callable[[], Plan], guarantee: str
) -> None:
    between.plan = lie()
    with pytest.raises(StoreUnusable, match=f"does not keep {guarantee}.*; use a bucket with"):
        _open_and_check(between.url(prefix))
    between.plan = lambda request: PASS
    # Nothing was kept in it, so that the place is still empty for an honest server.
    assert ("guarantees", True) in _open_and_check(between.url(prefix))


def test_an_honest_bucket_is_probed_at_the_first_connection_only(between: Proxy, prefix: str) -> None:
    between.plan = lambda request: PASS
    _open_and_check(between.url(prefix))
    before = between.counts["PUT"]

    async def again() -> None:
        await (await open_s3(between.url(prefix), SystemClock())).close()

    asyncio.run(again())
    assert between.counts["PUT"] == before


def test_doctor_finds_a_bucket_that_began_to_lie(between: Proxy, prefix: str) -> None:
    between.plan = lambda request: PASS
    assert ("guarantees", True) in _open_and_check(between.url(prefix))
    between.plan = ignores_replaces
    assert ("guarantees", False) in _open_and_check(between.url(prefix))


def test_an_unclear_answer_to_the_probe_is_no_verdict(between: Proxy, prefix: str) -> None:
    between.plan = lambda request: Act(drop="after") if request.conditional else PASS
    with pytest.raises(Unavailable):
        _open_and_check(between.url(prefix))


def test_losers_of_a_race_that_are_answered_500_do_not_condemn_a_bucket(between: Proxy, prefix: str) -> None:
    seen: set[str] = set()

    def plan(request: Request) -> Act:
        if request.kind != "PUT" or "creators" not in request.key:
            return PASS
        first = request.key not in seen
        seen.add(request.key)
        return PASS if first else Act(status=500, instead=False)

    between.plan = plan
    assert ("guarantees", True) in _open_and_check(between.url(prefix))


def test_a_server_that_wants_etags_without_quotes_is_served(between: Proxy, prefix: str) -> None:
    between.plan = lambda request: Act(bare_etags=True)
    assert ("guarantees", True) in _open_and_check(between.url(prefix))


def test_doctor_says_what_to_set_on_a_versioned_bucket(server: Seaweed) -> None:
    name = f"{BUCKET}-versioned"
    server.make_bucket(name)
    body = b"<VersioningConfiguration><Status>Enabled</Status></VersioningConfiguration>"
    status, answer = server.request("PUT", f"/{name}", "versioning=", body)
    assert status == 200, answer
    assert ("versions", False) in _open_and_check(server.url("place").replace(BUCKET, name))
