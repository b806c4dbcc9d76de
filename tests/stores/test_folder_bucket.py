"""The folder bucket: atomic among real processes, whole after SIGKILL, listed in the order of S3."""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import random
import signal
import stat
import subprocess
import sys
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

import pytest

from buoy.errors import BadInput, StoreUnusable, Unavailable
from buoy.stores.objects.bucket import Bucket, Changed, Exists
from buoy.stores.objects.buckets import folder_locks
from buoy.stores.objects.buckets.folder import FolderBucket
from buoy.stores.objects.buckets.memory import MemoryBucket
from tests.patience import PATIENCE_S

T = TypeVar("T")
PROCESSES = 4


def _with_bucket(place: Path, play: Callable[[FolderBucket], Awaitable[T]]) -> T:
    async def whole() -> T:
        bucket = await FolderBucket.open(place, durable=False)
        try:
            return await play(bucket)
        finally:
            await bucket.close()

    return asyncio.run(whole())


def _process(place: Path, code: str) -> subprocess.Popen[str]:
    """A Python process that says `ready`, waits for a line and then runs the body of a coroutine."""
    body = "\n".join(f"    {line}" for line in code.strip().splitlines())
    program = f"""
import asyncio, json, os, sys
from pathlib import Path
from buoy.stores.objects.bucket import Changed, Exists
from buoy.stores.objects.buckets.folder import FolderBucket

async def main():
    bucket = await FolderBucket.open(Path({str(place)!r}), durable=False)
    print("ready", flush=True)
    sys.stdin.readline()
{body}

asyncio.run(main())
"""
    return subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def _at_once(processes: list[subprocess.Popen[str]]) -> list[list[str]]:
    """Lets all of them go at the same time, and gives what each printed."""
    for process in processes:
        assert process.stdout is not None and process.stdout.readline() == "ready\n"
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    outputs = [process.communicate(timeout=PATIENCE_S)[0].split() for process in processes]
    assert [process.returncode for process in processes] == [0] * len(processes)
    return outputs


def test_of_four_processes_that_create_a_key_one_wins(tmp_path: Path) -> None:
    code = """
for number in range(50):
    try:
        await bucket.create(f"a/{number}", f"{os.getpid()} {number}".encode())
        print(number)
    except Exists:
        pass
"""
    outputs = _at_once([_process(tmp_path, code) for _ in range(PROCESSES)])
    assert sorted(int(number) for won in outputs for number in won) == list(range(50))


def test_a_counter_raised_by_four_processes_loses_nothing(tmp_path: Path) -> None:
    _with_bucket(tmp_path, lambda bucket: bucket.create("counter", b"0"))
    code = """
for _ in range(50):
    while True:
        data, etag = await bucket.get("counter")
        try:
            await bucket.replace("counter", str(int(data) + 1).encode(), etag)
            break
        except Changed:
            print("again")
"""
    _at_once([_process(tmp_path, code) for _ in range(PROCESSES)])
    found = _with_bucket(tmp_path, lambda bucket: bucket.get("counter"))
    assert found is not None and found[0] == b"%d" % (PROCESSES * 50)


def test_creating_and_deleting_in_one_folder_by_four_processes_breaks_nothing(tmp_path: Path) -> None:
    """A delete removes the empty folder in which another process is about to create something."""
    code = """
for number in range(100):
    key = f"tasks/q/1/{os.getpid()}-{number}"
    await bucket.create(key, b"x")
    assert await bucket.get(key) is not None
    await bucket.delete(key)
"""
    _at_once([_process(tmp_path, code) for _ in range(PROCESSES)])
    assert not (tmp_path / "tasks").exists()


def test_sigkill_in_the_middle_of_writing_leaves_no_half_object(tmp_path: Path) -> None:
    code = """
body = json.dumps(["x" * 1000] * 200).encode()
await bucket.create("state", b"[0]")
etag = (await bucket.get("state"))[1]
for number in range(10**6):
    await bucket.create(f"log/{number:012}", body)
    etag = await bucket.replace("state", json.dumps([number] + ["x" * 1000] * 200).encode(), etag)
    if number == 0:
        print("writing", flush=True)
"""
    for round_number in range(5):
        place = tmp_path / str(round_number)
        process = _process(place, code)
        assert process.stdin is not None and process.stdout is not None
        process.stdout.readline()
        process.stdin.write("go\n")
        process.stdin.flush()
        assert process.stdout.readline() == "writing\n"
        threading.Event().wait(0.01 + 0.013 * round_number)
        os.kill(process.pid, signal.SIGKILL)
        process.communicate()

        async def whole(bucket: FolderBucket) -> int:
            keys = await bucket.list("")
            for key in keys:
                found = await bucket.get(key)
                assert found is not None
                assert len(json.loads(found[0])) >= 200 or key == "state"
            numbers = [int(key.removeprefix("log/")) for key in keys if key.startswith("log/")]
            assert numbers == list(range(len(numbers)))
            # The lock of the dead process is free, and what it left half done is out of the way.
            found = await bucket.get("state")
            assert found is not None
            await bucket.replace("state", b"[1]", found[1])
            return len(numbers)

        assert _with_bucket(place, whole) >= 1


ORDERED = [
    "a",
    "b-b/x",
    "b.b/x",
    "b/a",
    "b/b/c",
    "b/b0",
    "b0/x",
    "b~/x",
    "c/1/z",
    "c/10/a",
    "c/2/a",
    "workflow/run-1.x/log/1",
    "workflow/run-1/log/1",
    "workflow/run-10/log/1",
]


@pytest.mark.parametrize("prefix", ["", "b", "b/", "b/b", "b/b/c", "c/1", "workflow/run-1", "nothing", "b/nothing/x"])
def test_keys_are_listed_in_the_byte_order_of_whole_keys(tmp_path: Path, prefix: str) -> None:
    assert sorted(ORDERED) == ORDERED

    async def fill(bucket: Bucket) -> None:
        for key in random.Random(4).sample(ORDERED, len(ORDERED)):
            await bucket.create(key, key.encode())

    async def play(bucket: FolderBucket) -> None:
        twin = MemoryBucket()
        await fill(bucket)
        await fill(twin)
        places = [None, *ORDERED, "b", "b/", "b/b/", "b~", "c/1/", "zzz", "B"]
        for after in places:
            for limit in (None, 1, 3):
                expected = [key for key in ORDERED if key.startswith(prefix) and (after is None or key > after)][:limit]
                assert await bucket.list(prefix, after, limit) == expected, (after, limit)
                assert await twin.list(prefix, after, limit) == expected, (after, limit)
                assert [key for key, _ in await bucket.list_etags(prefix, after, limit)] == expected, (after, limit)

    _with_bucket(tmp_path, play)


@pytest.mark.parametrize("kind", ["folder", "memory"])
def test_both_buckets_keep_the_same_rules(tmp_path: Path, kind: str) -> None:
    async def play(bucket: Bucket) -> None:
        first = await bucket.create("k/1", b"one")
        with pytest.raises(Exists):
            await bucket.create("k/1", b"two")
        assert await bucket.get("k/1") == (b"one", first)
        with pytest.raises(Changed):
            await bucket.replace("k/1", b"two", "not its etag")
        with pytest.raises(Changed):
            await bucket.replace("k/2", b"two", first)
        second = await bucket.replace("k/1", b"two", first)
        assert second != first
        with pytest.raises(Changed):
            await bucket.replace("k/1", b"three", first)
        assert await bucket.get("k/1") == (b"two", second)
        assert await bucket.get_unless("k/1", second) is None
        assert await bucket.get_unless("k/1", first) == (b"two", second)
        assert await bucket.get_unless("k/2", first) is None
        third = await bucket.put("k/1", b"three")
        assert await bucket.get("k/1") == (b"three", third)
        new = await bucket.put("k/deep/2", b"new")
        assert await bucket.list_etags("k/") == [("k/1", third), ("k/deep/2", new)]
        await bucket.delete_many(["k/deep/2", "k/3"])
        assert await bucket.list("") == ["k/1"]
        await bucket.delete("k/1")
        await bucket.delete("k/1")
        assert await bucket.get("k/1") is None
        assert await bucket.list("") == []
        with pytest.raises(Changed):
            await bucket.replace("k/1", b"three", second)

    if kind == "folder":
        _with_bucket(tmp_path, play)
    else:
        asyncio.run(play(MemoryBucket()))


@pytest.mark.parametrize(
    "key", ["", "/etc/passwd", "a/../b", "..", "a//b", "a/", "a b", ".tmp/x", "a/.b", "ä", "x" * 600]
)
def test_a_key_that_is_a_path_to_elsewhere_is_refused(tmp_path: Path, key: str) -> None:
    async def play(bucket: FolderBucket) -> None:
        for call in (bucket.create(key, b""), bucket.get(key), bucket.replace(key, b"", ""), bucket.delete(key)):
            with pytest.raises(BadInput):
                await call

    _with_bucket(tmp_path, play)


def test_the_pulse_changes_when_another_process_creates_something(tmp_path: Path) -> None:
    async def play(bucket: FolderBucket) -> None:
        other = await FolderBucket.open(tmp_path, durable=False)
        seen = {bucket.pulse()}
        for number in range(50):
            await other.create(f"k/{number}", b"")
            seen.add(bucket.pulse())
        assert len(seen) == 51
        assert bucket.pulse() == bucket.pulse()
        await other.close()

    _with_bucket(tmp_path, play)


def test_only_its_owner_can_read_what_is_stored(tmp_path: Path) -> None:
    place = tmp_path / "new" / "store"
    _with_bucket(place, lambda bucket: bucket.create("workflow/run/log/1", b"secret"))
    for path in [place, *place.rglob("*")]:
        assert stat.S_IMODE(path.stat().st_mode) & 0o077 == 0, path


def test_temporary_files_of_the_dead_are_removed_when_they_are_old(tmp_path: Path) -> None:
    _with_bucket(tmp_path, lambda bucket: bucket.create("a", b""))
    old, new = tmp_path / ".tmp" / "old", tmp_path / ".tmp" / "new"
    old.write_bytes(b"half")
    new.write_bytes(b"half")
    os.utime(old, (1.0, 1.0))
    assert _with_bucket(tmp_path, lambda bucket: bucket.list("")) == ["a"]
    assert (old.exists(), new.exists()) == (False, True)


def test_a_file_instead_of_a_folder_is_said_in_plain_words(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for place in (tmp_path / "file", tmp_path / "file" / "deeper"):
        with pytest.raises(StoreUnusable, match=r"file.*cannot be used as a store"):
            _with_bucket(place, lambda bucket: bucket.list(""))


@pytest.mark.parametrize("number", ["ENOSPC", "EROFS", "EACCES", "EIO"])
def test_what_the_system_refuses_is_told_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: str) -> None:
    import errno

    async def play(bucket: FolderBucket) -> None:
        _, etag = await bucket.create("a", b"1"), (await bucket.get("a") or (b"", ""))[1]

        def fail(*_: object) -> None:
            raise OSError(getattr(errno, number), os.strerror(getattr(errno, number)))

        monkeypatch.setattr(os, "fdopen", fail)
        kind = Unavailable if number == "EIO" else StoreUnusable
        for call in (bucket.create("b", b"2"), bucket.replace("a", b"2", etag)):
            with pytest.raises(kind, match=str(tmp_path)):
                await call
        monkeypatch.undo()
        assert (await bucket.get("a") or (b"", ""))[0] == b"1"
        assert await bucket.list("") == ["a"]
        assert list((tmp_path / ".tmp").iterdir()) == []

    _with_bucket(tmp_path, play)


def test_a_closed_bucket_gives_no_answers(tmp_path: Path) -> None:
    async def play() -> None:
        bucket = await FolderBucket.open(tmp_path)
        await bucket.create("a", b"1")
        await bucket.close()
        await bucket.close()
        with pytest.raises(Unavailable, match="closed"):
            await bucket.get("a")

    asyncio.run(play())


@contextmanager
def _all_locks_kept(root: Path) -> Iterator[None]:
    """As by a process that was stopped while it wrote: a lock belongs to an open file, so this process may keep it."""
    kept = [
        os.open(root / ".locks" / f"{slot:02}", os.O_RDWR | os.O_CREAT, 0o600) for slot in range(folder_locks.LOCKS)
    ]
    try:
        for number in kept:
            fcntl.flock(number, fcntl.LOCK_EX)
        yield
    finally:
        for number in kept:
            os.close(number)


def test_a_lock_that_a_stopped_process_keeps_is_named_and_reads_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(folder_locks, "LOCK_WAIT_MAX_S", 0.05)

    async def play(bucket: FolderBucket) -> None:
        etag = await bucket.create("a", b"1")
        with _all_locks_kept(tmp_path):
            for call in (bucket.replace("a", b"2", etag), bucket.put("a", b"2"), bucket.delete("a")):
                with pytest.raises(Unavailable, match=r"has held the lock .*/\.locks/\d\d for .*fuser"):
                    await call
            assert await bucket.get("a") == (b"1", etag)
        await bucket.replace("a", b"2", etag)

    _with_bucket(tmp_path, play)


def test_a_close_ends_the_wait_for_a_lock(tmp_path: Path) -> None:
    async def play() -> None:
        bucket = await FolderBucket.open(tmp_path, durable=False)
        etag = await bucket.create("a", b"1")
        with _all_locks_kept(tmp_path):
            waiting = asyncio.ensure_future(bucket.replace("a", b"2", etag))
            await asyncio.sleep(0)
            await bucket.close()
            with pytest.raises(Unavailable, match="closed before its lock"):
                await waiting

    asyncio.run(play())
