"""`buoy serve` as a process of its own, for measurements through a server."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

TOKEN = "buoy_benchmark"


class Server:
    """`buoy serve` on a SQLite file in that folder, until `stop`."""

    def __init__(self, folder: Path, file: str = "runs.db") -> None:
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]
        self.store = f"sqlite:///{folder}/{file}"
        self.url = f"http://127.0.0.1:{self.port}"
        token = folder / f"{file}.token"
        token.write_text(TOKEN)
        token.chmod(0o600)
        words = ["serve", "--store", self.store, "--port", str(self.port), "--token-file", str(token)]
        self._process = subprocess.Popen([sys.executable, "-m", "buoy", *words], stdout=subprocess.DEVNULL)
        while True:
            try:
                socket.create_connection(("127.0.0.1", self.port)).close()
                return
            except ConnectionRefusedError:
                assert self._process.poll() is None, "the server ended"
                time.sleep(0.05)

    def cpu_s(self) -> float:
        fields = Path(f"/proc/{self._process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def memory_mb(self) -> float:
        pages = int(Path(f"/proc/{self._process.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE") / 1e6

    def stop(self) -> None:
        self._process.send_signal(signal.SIGTERM)
        self._process.wait(60)
