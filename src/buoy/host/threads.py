"""The system's threads."""

from __future__ import annotations

import threading
from collections.abc import Callable


class SystemThreads:
    """Daemon threads: a step that never returns must not keep the process from ending."""

    def run(self, work: Callable[[], None], name: str) -> None:
        threading.Thread(target=work, name=name, daemon=True).start()
