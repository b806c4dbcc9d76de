"""A proxy before PostgreSQL that does what networks do: it loses answers to commits, delays them, cuts lines.

Invariant: a fault hits a commit. The proxy knows one by the name of its function in the request, which is sent as text.
Absent on purpose: the protocol. Bytes are handed on as they come.
"""

from __future__ import annotations

import random
import socket
import threading
from pathlib import Path
from typing import Literal

from tests.patience import wait_until

Fault = Literal["drop", "delay", "cut"]
_COMMITS = (b"commit_group", b"append_run")
_CHUNK = 1 << 16


class Proxy:
    """Listens on a unix socket in `folder`, and speaks to the server's in `server_folder`."""

    def __init__(self, folder: Path, server_folder: Path, fault: Fault, *, chance: float, seed: int, delay_s: float):
        self.folder = folder
        self.hits = 0
        self.active = True
        self._server = str(server_folder / ".s.PGSQL.5432")
        self._fault = fault
        self._chance = chance
        self._delay_s = delay_s
        self._luck = random.Random(seed)
        self._lock = threading.Lock()
        self._listening = socket.socket(socket.AF_UNIX)
        self._listening.bind(str(folder / ".s.PGSQL.5432"))
        self._listening.listen(64)
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self._listening.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listening.accept()
            except OSError:
                return  # closed
            threading.Thread(target=_Line(self, client).serve, daemon=True).start()

    def strikes(self) -> bool:
        with self._lock:
            hit = self.active and self._luck.random() < self._chance
            self.hits += hit
            return hit

    def connect(self) -> socket.socket:
        line = socket.socket(socket.AF_UNIX)
        line.connect(self._server)
        return line

    @property
    def fault(self) -> Fault:
        return self._fault

    @property
    def delay_s(self) -> float:
        return self._delay_s


class _Line:
    """One connection through the proxy."""

    def __init__(self, proxy: Proxy, client: socket.socket) -> None:
        self._proxy = proxy
        self._client = client
        self._struck = threading.Event()

    def serve(self) -> None:
        try:
            self._server = self._proxy.connect()
        except OSError:
            self._client.close()
            return
        threading.Thread(target=self._answers, daemon=True).start()
        try:
            while data := self._client.recv(_CHUNK):
                if any(name in data for name in _COMMITS) and self._proxy.strikes():
                    if self._proxy.fault == "cut":
                        self._server.sendall(data[: len(data) // 2])
                        break
                    self._struck.set()
                self._server.sendall(data)
        except OSError:
            pass  # one side has hung up; so does the other
        self._end()

    def _answers(self) -> None:
        try:
            while data := self._server.recv(_CHUNK):
                if self._struck.is_set():
                    if self._proxy.fault == "drop":
                        break
                    self._struck.clear()
                    threading.Event().wait(self._proxy.delay_s)
                self._client.sendall(data)
        except OSError:
            pass  # as above
        self._end()

    def _end(self) -> None:
        for each in (self._client, self._server):
            try:
                each.shutdown(socket.SHUT_RDWR)
            except OSError:
                continue  # it has ended
            finally:
                each.close()


def struck(proxy: Proxy, times: int) -> None:
    """Waits until the proxy has hit so many commits."""
    wait_until(lambda: proxy.hits >= times, f"{times} faults")
