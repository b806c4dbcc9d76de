"""`buoy serve` as a user starts it: tokens, refusals, and a worker that reaches nothing but the server."""

from __future__ import annotations

import os
import signal
import socket
import stat
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import pytest

from buoy.web.serve import ServeOptions, listen
from tests.free_ports import free_ports
from tests.patience import PATIENCE_S, wait_until

FLOWS = """
import buoy

@buoy.step
def double(n: int) -> int:
    return 2 * n

@buoy.workflow
def flow(n: int) -> int:
    return double(double(n))
"""


class Place:
    """A folder with a server and the commands of its user."""

    def __init__(self, folder: Path, store: str = "sqlite:///runs.db") -> None:
        self.folder = folder
        self.store = store
        (self.port,) = free_ports(1)
        self.url = f"http://127.0.0.1:{self.port}"
        self.environment = {**os.environ, "XDG_STATE_HOME": str(folder / "state")}
        self.environment.pop("BUOY_STORE", None)
        self.server: subprocess.Popen[str] | None = None
        (folder / "flows.py").write_text(FLOWS)

    @property
    def token_path(self) -> Path:
        return self.folder / "state/buoy/tokens" / f"127.0.0.1_{self.port}"

    def buoy(self, *words: str, code: int = 0, **variables: str) -> str:
        done = subprocess.run(
            [sys.executable, "-m", "buoy", *words],
            cwd=self.folder,
            env={**self.environment, **variables},
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
        )
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout + done.stderr

    def serve(self, *more: str, log: IO[str] | None = None) -> None:
        words = ["serve", "--store", self.store, "--port", str(self.port), *more]
        self.server = subprocess.Popen(
            [sys.executable, "-m", "buoy", *words], cwd=self.folder, env=self.environment, text=True, stderr=log
        )
        wait_until(self.ready, "the server to answer")

    def ready(self) -> bool:
        try:
            return self.get("/readyz") == 200
        except OSError:
            return False

    def get(self, path: str) -> int:
        try:
            with urllib.request.urlopen(self.url + path, timeout=PATIENCE_S) as answer:
                return int(answer.status)
        except urllib.error.HTTPError as error:
            return error.code

    def end(self, number: int = signal.SIGTERM) -> int:
        assert self.server is not None
        self.server.send_signal(number)
        code = self.server.wait(PATIENCE_S)
        self.server = None
        return code


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    place = Place(tmp_path)
    yield place
    if place.server is not None:
        place.end(signal.SIGKILL)


def test_a_worker_that_reaches_only_the_server_drives_a_run_to_its_end(place: Place) -> None:
    place.serve()
    place.buoy("start", "flows.py:flow", "--arg", "n=3", "--id", "r1", "--store", place.url)
    place.buoy("worker", "flows.py", "--until-idle", "--store", place.url)
    # The token is found under either name of loopback.
    assert place.buoy("result", "r1", "--store", f"http://localhost:{place.port}").strip() == "12"
    assert place.end() == 0


def test_a_server_on_any_free_port_and_on_ipv6_names_its_url(place: Place) -> None:
    words = ["serve", "--store", "sqlite:///runs.db", "--host", "::1", "--port", "0"]
    place.server = subprocess.Popen(
        [sys.executable, "-m", "buoy", *words],
        cwd=place.folder,
        env=place.environment,
        text=True,
        stdout=subprocess.PIPE,
    )
    assert place.server.stdout is not None
    url = next(line.split()[1] for line in place.server.stdout if line.startswith("serving"))
    assert url.startswith("http://[::1]:") and not url.endswith(":0")
    assert "no active runs" in place.buoy("ps", "--store", url)


def test_runs_survive_a_kill_of_the_server(place: Place) -> None:
    place.serve()
    place.buoy("start", "flows.py:flow", "--arg", "n=5", "--id", "r1", "--store", place.url)
    place.end(signal.SIGKILL)
    assert "cannot be reached" in place.buoy("ps", "--store", place.url, code=5)
    place.serve()
    place.buoy("worker", "flows.py", "--until-idle", "--store", place.url)
    assert place.buoy("result", "r1", "--store", place.url).strip() == "20"


def test_only_a_known_token_is_let_in(place: Place) -> None:
    place.serve()
    assert stat.S_IMODE(place.token_path.stat().st_mode) == 0o600
    told = place.buoy("ps", "--store", place.url, code=5, BUOY_TOKEN="another")
    assert "401" in told and "another" not in told
    token = place.token_path.read_text().strip()
    assert "no active runs" in place.buoy(
        "ps", "--store", place.url, BUOY_TOKEN=token, XDG_STATE_HOME=str(place.folder)
    )


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["--host", "0.0.0.0"], "beyond loopback"),
        (["--no-token"], "--no-token needs --socket"),
        (["--tls-cert", "cert.pem"], "go together"),
    ],
)
def test_what_would_let_strangers_in_is_refused(place: Place, words: list[str], text: str) -> None:
    assert text in place.buoy("serve", "--store", "sqlite:///runs.db", *words, code=2)


def test_a_server_of_a_server_is_refused(place: Place) -> None:
    """It could not read the tokens of the store behind the other one."""
    assert "is a server" in place.buoy("serve", "--store", "http://127.0.0.1:1", "--port", "0", code=2)


def test_a_token_file_that_others_can_read_is_refused(place: Place) -> None:
    file = place.folder / "token"
    file.write_text("secret\n")
    file.chmod(0o644)
    told = place.buoy("serve", "--store", "sqlite:///runs.db", "--token-file", str(file), code=2)
    assert "chmod 600" in told and "secret" not in told


SPEC = """
name: batch
parameters: {k: "1:6"}
steps:
  - {id: "job_{k}", run: "echo job_{k} >> witness"}
"""


def test_a_server_with_specs_drives_a_batch_run_that_runners_execute(place: Place) -> None:
    (place.folder / "spec.yaml").write_text(SPEC)
    store = ("--store", place.url)
    place.serve("--specs")
    place.buoy("submit", "spec.yaml", "--id", "b1", *store)
    # Only an owner makes lots, and no other process is there.
    wait_until(lambda: "b1.lot-1" in place.buoy("ps", "--parent", "b1", *store), "the first lot")
    assert not (place.folder / "witness").exists()
    place.buoy("runner", "--run", "b1", *store)
    assert len((place.folder / "witness").read_text().splitlines()) == 6
    assert place.server is not None
    place.server.send_signal(signal.SIGTERM)
    assert place.server.wait(PATIENCE_S) == 0


def test_without_specs_a_server_leaves_batch_runs_to_others_and_why_says_so(place: Place) -> None:
    (place.folder / "spec.yaml").write_text(SPEC)
    store = ("--store", place.url)
    place.serve()
    place.buoy("submit", "spec.yaml", "--id", "b1", *store)
    said = place.buoy("why", "b1", *store)
    assert (
        "It waits for a process that drives batch runs: a runner of its jobs, a worker, or a server that was "
        "started with --specs, since " in said
    )


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
def test_a_connection_sends_the_body_of_an_answer_without_a_wait_for_its_headers(host: str) -> None:
    with (
        listen(ServeOptions(host=host, port=0)) as listening,
        socket.create_connection(listening.getsockname()[:2]),
    ):
        accepted, _ = listening.accept()
        with accepted:
            assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
