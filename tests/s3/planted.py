"""Objects that a SeaweedFS server gets at once: thousands per second, where signed PUTs give hundreds.

The entries of its filer are written as `weed shell` saves them (`fs.meta.save`), with the data inside, and loaded.
A reader of the bucket cannot tell them from objects that were put. They must not be written again: the server panics.
"""

from __future__ import annotations

import hashlib
import struct
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.patience import wait_until

from .seaweed import BUCKET, Seaweed, weed

_LANES = 32
_LAST = 10 * _LANES
_ENDS = ("master.port", "filer.port")
_MODE = 0o660
# Field numbers of the messages `FullEntry`, `Entry` and `FuseAttributes` of SeaweedFS.
_DIR, _ENTRY = 1, 2
_NAME, _ATTRIBUTES, _EXTENDED, _CONTENT = 1, 4, 5, 9
_SIZE, _CHANGED, _FILE_MODE, _CREATED, _DIGEST = 1, 2, 3, 6, 14


def plant_objects(server: Seaweed, prefix: str, made: Mapping[str, bytes]) -> None:
    """Writes all of them below that prefix of the bucket of the tests."""
    now = int(time.time())
    master, filer = (f"127.0.0.1:{server.ports[part]}.{server.ports[part + '.grpc']}" for part in _ENDS)
    with TemporaryDirectory() as folder:
        path = Path(folder) / "entries.meta"
        with path.open("wb") as file:
            file.writelines(_entry(f"/buckets/{BUCKET}/{prefix}/{key}", body, now) for key, body in made.items())
        shell = subprocess.Popen(
            [weed(), "shell", f"-master={master}", f"-filer={filer}"], text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip
        assert shell.stdin is not None and shell.stdout is not None
        shell.stdin.write(f"fs.meta.load -v=false -concurrency={_LANES} {path}\n")
        shell.stdin.flush()
        loaded = any("is loaded" in line for line in shell.stdout)
        # The shell counts an entry before it is there, and its end would cut off the last ones.
        for key in list(made)[-_LAST:]:
            wait_until(lambda key=key: server.request("GET", f"/{BUCKET}/{prefix}/{key}")[0] == 200, key)  # type: ignore[misc]
        shell.communicate("exit\n")
    assert loaded


def _entry(path: str, body: bytes, now: int) -> bytes:
    folder, _, name = path.rpartition("/")
    digest = hashlib.md5(body)  # the etag of an object, as S3 servers make it
    attributes = b"".join(
        (
            _number(_SIZE, len(body)), _number(_CHANGED, now), _number(_FILE_MODE, _MODE), _number(_CREATED, now),
            _bytes(_DIGEST, digest.digest()),
        )
    )  # fmt: skip
    etag = _bytes(1, b"Seaweed-X-Amz-ETag") + _bytes(2, digest.hexdigest().encode())
    entry = b"".join(
        (_bytes(_NAME, name.encode()), _bytes(_ATTRIBUTES, attributes), _bytes(_EXTENDED, etag), _bytes(_CONTENT, body))
    )
    whole = _bytes(_DIR, folder.encode()) + _bytes(_ENTRY, entry)
    return struct.pack(">I", len(whole)) + whole


def _number(field: int, value: int) -> bytes:
    return _varint(field << 3) + _varint(value)


def _bytes(field: int, value: bytes) -> bytes:
    return _varint(field << 3 | 2) + _varint(len(value)) + value


def _varint(number: int) -> bytes:
    made = bytearray()
    while number > 0x7F:
        made.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes((*made, number))
