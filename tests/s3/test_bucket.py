"""The S3 adapter: each odd answer of a real server or its network, and what it means."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import pytest

from buoy.core.extras import INSTALL_S3
from buoy.errors import BadInput, StoreUnusable, Unavailable
from buoy.stores.objects.bucket import Changed, Exists
from buoy.stores.objects.buckets.s3 import S3Bucket
from buoy.stores.objects.buckets.s3_address import parse_address

from .proxy import PASS, Act, Proxy, Request, proxy
from .seaweed import SECRET, Seaweed


@pytest.fixture(scope="module")
def between(server: Seaweed) -> Iterator[Proxy]:
    with proxy(server) as running:
        yield running


@pytest.fixture(autouse=True)
def honest(between: Proxy) -> None:
    between.plan = lambda request: PASS
    between.struck.clear()


def _on(url: str, play: Callable[[S3Bucket], Awaitable[None]]) -> None:
    async def opened() -> None:
        bucket = await S3Bucket.open(parse_address(url))
        try:
            await play(bucket)
        finally:
            await bucket.close()

    asyncio.run(opened())


def _times(number: int, act: Act, kind: str = "PUT", part: str = "") -> Callable[[Request], Act]:
    """The first so many requests of a kind meet with that, the others pass."""
    left = [number]

    def plan(request: Request) -> Act:
        if request.kind != kind or part not in request.key or not left[0]:
            return PASS
        left[0] -= 1
        return act

    return plan


KEYS = sorted(["a/0", "a/sub/1", "a/sub-1", "a/sub.1", "a/sub0", "a/suc", "a/z~1", "a%2F/x", "b", "sub/1"])


def test_keys_are_listed_by_any_prefix_in_byte_order(server: Seaweed, prefix: str) -> None:
    async def play(bucket: S3Bucket) -> None:
        await asyncio.gather(*(bucket.create(key, key.encode()) for key in KEYS))
        for part in ("", "a", "a/", "a/su", "a/sub", "a/sub-", "a/sub/", "a/0", "a/z~", "a%", "b", "c", "a/nothing/x"):
            for after in (None, "a/0", "a/sub", "a/sub-1", "a/sub.1", "a/sub/1", "zzz"):
                for limit in (None, 1, 2):
                    wanted = [key for key in KEYS if key.startswith(part) and (after is None or key > after)][:limit]
                    assert await bucket.list(part, after, limit) == wanted, (part, after, limit)

    _on(server.url(prefix), play)


def test_the_bucket_keeps_the_rules_of_all_buckets(server: Seaweed, prefix: str) -> None:
    async def play(bucket: S3Bucket) -> None:
        first = await bucket.create("k/1", b"one")
        with pytest.raises(Exists):
            await bucket.create("k/1", b"two")
        with pytest.raises(Changed):
            await bucket.replace("k/1", b"two", "0" * 32)
        with pytest.raises(Changed):
            await bucket.replace("k/2", b"two", first)
        second = await bucket.replace("k/1", b"two", first)
        assert await bucket.get("k/1") == (b"two", second)
        assert await bucket.get_unless("k/1", second) is None
        assert await bucket.get_unless("k/1", first) == (b"two", second)
        assert await bucket.list_etags("k/") == [("k/1", second)]
        third = await bucket.put("k/1", b"three")
        assert await bucket.get("k/1") == (b"three", third)
        await bucket.create("k/3", b"")
        await bucket.delete_many(["k/1", "k/3", "k/none"])
        await bucket.delete("k/1")
        assert await bucket.get("k/1") is None
        assert await bucket.list("") == []

    _on(server.url(prefix), play)


def test_a_conflict_at_a_create_that_did_not_land_is_tried_again(between: Proxy, prefix: str) -> None:
    async def play(bucket: S3Bucket) -> None:
        between.plan = _times(2, Act(status=409))
        await bucket.create("k", b"one")
        assert between.struck["PUT"] == 2
        assert (await bucket.get("k") or (b"",))[0] == b"one"

    _on(between.url(prefix), play)


def test_a_conflict_with_nothing_there_for_long_is_unclear_and_not_exists(between: Proxy, prefix: str) -> None:
    async def play(bucket: S3Bucket) -> None:
        between.plan = _times(100, Act(status=409))
        with pytest.raises(Unavailable, match="nothing is there"):
            await bucket.create("k", b"one")

    _on(between.url(prefix), play)


def test_a_conflict_at_a_create_that_another_one_won_is_exists(between: Proxy, prefix: str) -> None:
    async def play(bucket: S3Bucket) -> None:
        await bucket.create("k", b"other")
        between.plan = _times(1, Act(status=409))
        with pytest.raises(Exists):
            await bucket.create("k", b"one")

    _on(between.url(prefix), play)


@pytest.mark.parametrize(
    "act", [Act(drop="after"), Act(status=500, instead=False), Act(status=503, code="X", instead=False)]
)
def test_a_create_that_landed_and_was_answered_with_an_error_is_sent_once_and_unclear(
    between: Proxy, prefix: str, act: Act
) -> None:
    async def play(bucket: S3Bucket) -> None:
        between.plan = _times(1, act)
        before = between.counts["PUT"]
        with pytest.raises(Unavailable):
            await bucket.create("k", b"one")
        assert between.counts["PUT"] == before + 1
        assert (await bucket.get("k") or (b"",))[0] == b"one"

    _on(between.url(prefix), play)


@pytest.mark.parametrize("act", [Act(drop="before"), Act(status=500)])
def test_a_replacement_without_an_answer_is_sent_once_and_unclear(between: Proxy, prefix: str, act: Act) -> None:
    async def play(bucket: S3Bucket) -> None:
        etag = await bucket.create("k", b"one")
        between.plan = _times(1, act)
        before = between.counts["PUT"]
        with pytest.raises(Unavailable):
            await bucket.replace("k", b"two", etag)
        assert between.counts["PUT"] == before + 1
        await bucket.replace("k", b"two", etag)

    _on(between.url(prefix), play)


@pytest.mark.parametrize(("status", "code"), [(404, "NoSuchKey"), (412, "PreconditionFailed")])
def test_a_replacement_of_what_is_not_there_is_changed_whatever_the_status(
    between: Proxy, prefix: str, status: int, code: str
) -> None:
    async def play(bucket: S3Bucket) -> None:
        between.plan = _times(1, Act(status=status, code=code))
        with pytest.raises(Changed):
            await bucket.replace("k", b"two", "0" * 32)

    _on(between.url(prefix), play)


def test_a_conflict_at_a_replacement_is_tried_again_while_the_version_stands(between: Proxy, prefix: str) -> None:
    async def play(bucket: S3Bucket) -> None:
        etag = await bucket.create("k", b"one")
        between.plan = _times(1, Act(status=409))
        second = await bucket.replace("k", b"two", etag)
        between.plan = _times(1, Act(status=409))
        with pytest.raises(Changed):
            await bucket.replace("k", b"three", etag)
        assert await bucket.get("k") == (b"two", second)

    _on(between.url(prefix), play)


def test_etags_are_the_same_with_and_without_quotes(between: Proxy, prefix: str) -> None:
    async def play(bucket: S3Bucket) -> None:
        quoted = await bucket.create("k", b"one")
        between.plan = lambda request: Act(bare_etags=True)
        bare = await bucket.get("k")
        assert bare is not None and bare[1] == quoted
        with pytest.raises(Changed):
            await bucket.replace("k", b"two", quoted)
        bucket.etag_form = "bare"
        await bucket.replace("k", b"two", quoted)

    _on(between.url(prefix), play)


@pytest.mark.parametrize("status", [503, 429])
def test_a_throttled_write_is_sent_again_since_nothing_was_taken_in(between: Proxy, prefix: str, status: int) -> None:
    async def play(bucket: S3Bucket) -> None:
        between.plan = _times(3, Act(status=status, code="SlowDown"))
        etag = await bucket.create("k", b"one")
        assert await bucket.get("k") == (b"one", etag)
        assert between.struck["PUT"] == 3

    _on(between.url(prefix), play)


@pytest.mark.parametrize("act", [Act(drop="before"), Act(drop="after"), Act(status=500), Act(status=503)])
def test_reads_listings_and_deletes_are_sent_again(between: Proxy, prefix: str, act: Act) -> None:
    async def play(bucket: S3Bucket) -> None:
        await bucket.create("k/1", b"one")
        for kind, call in (("GET", bucket.get("k/1")), ("LIST", bucket.list("k/")), ("DELETE", bucket.delete("k/1"))):
            between.plan = _times(1, act, kind)
            assert await call in (None, ["k/1"]) or kind == "GET"
            assert between.struck[kind] == 1
        assert await bucket.list("k/") == []

    _on(between.url(prefix), play)


def test_a_missing_bucket_is_not_a_missing_object(between: Proxy, prefix: str) -> None:
    async def play(bucket: S3Bucket) -> None:
        between.plan = lambda request: Act(status=404, code="NoSuchBucket")
        for call in (bucket.get("k"), bucket.create("k", b""), bucket.list("k/"), bucket.replace("k", b"", "0" * 32)):
            with pytest.raises(StoreUnusable, match="no such bucket; create it"):
                await call

    _on(between.url(prefix), play)


def test_refused_credentials_are_said_without_being_shown(
    server: Seaweed, prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wrong-secret")

    async def play(bucket: S3Bucket) -> None:
        with pytest.raises(StoreUnusable, match="check the credentials") as caught:
            await bucket.create("k", b"")
        assert "wrong-secret" not in str(caught.value) and SECRET not in str(caught.value)

    _on(server.url(prefix), play)


def test_the_keys_of_a_profile_are_used(
    server: Seaweed, prefix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "keys").write_text(f"[mine]\naws_access_key_id = testkey\naws_secret_access_key = {SECRET}\n")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "keys"))
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wrong-secret")

    async def play(bucket: S3Bucket) -> None:
        assert await bucket.create("k", b"")
        assert "mine" not in bucket.name and SECRET not in bucket.name

    _on(server.url(prefix) + "&profile=mine", play)
    with pytest.raises(BadInput, match="unknown profile 'other'"):
        _on(server.url(prefix) + "&profile=other", play)


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("s3://u:hidden@bucket/x", "carries credentials"),
        ("s3://", "names no bucket"),
        ("s3://bucket/a b", "names no bucket and prefix"),
        ("s3://bucket/x?colour=red", "unknown option 'colour'; choose endpoint"),
        ("s3://bucket/x?endpoint=ftp://host", "no plain http"),
        ("s3://bucket/x?endpoint=https://u:hidden@host", "no plain http"),
        ("s3://bucket/x?path_style=maybe", "choose true or false"),
        ("s3://bucket/x?timeout=soon", "seconds between"),
    ],
)
def test_a_url_that_names_no_bucket_is_refused_without_its_secrets(url: str, words: str) -> None:
    with pytest.raises(BadInput, match=words) as caught:
        parse_address(url)
    assert "hidden" not in str(caught.value)


def test_without_the_package_the_error_names_the_command_that_installs_it() -> None:
    code = (
        "import asyncio, sys; sys.modules['obstore'] = None; sys.modules['obstore.store'] = None\n"
        "from buoy.stores import open_store; from buoy.host.clock import SystemClock\n"
        "asyncio.run(open_store('s3://bucket/x', SystemClock()))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert INSTALL_S3 in done.stderr.splitlines()[-1]


def test_a_reopened_bucket_counts_its_requests_with_the_first(server: Seaweed, prefix: str) -> None:
    async def play(bucket: S3Bucket) -> None:
        again = await bucket.reopen()
        try:
            await again.create("k", b"")
            assert await bucket.get("k") is not None
            assert bucket.requests == again.requests == {"PUT": 1, "GET": 1}
        finally:
            await again.close()

    _on(server.url(prefix), play)


def test_credentials_that_may_not_list_are_refused_with_what_they_need(between: Proxy, prefix: str) -> None:
    async def play(bucket: S3Bucket) -> None:
        between.plan = _times(1, Act(status=403, code="AccessDenied"), "LIST")
        with pytest.raises(StoreUnusable, match=r"403 AccessDenied; check the credentials.* s3:ListBucket"):
            await bucket.list("k/")

    _on(between.url(prefix), play)
