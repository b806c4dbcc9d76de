"""The whole suite, and a second look at the few tests that failed: `python -m tests.suite [options of pytest]`.

A test with real processes can fail because the machine stood still. A test that fails twice, the second time alone,
is broken. One that fails and then passes is named in the last lines: it or the code has a race to be found.

Invariant: at most `FEW` tests get a second look, and none gets a third.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path

FEW = 3
TESTS_FAILED = 1


def run_pytest(cache: str, *options: str) -> int:
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-o", f"cache_dir={cache}", *options], check=False
    ).returncode


def failed_tests(cache: str) -> list[str]:
    kept = Path(cache, "v", "cache", "lastfailed")
    return sorted(json.loads(kept.read_text())) if kept.exists() else []


def main(options: list[str]) -> int:
    with tempfile.TemporaryDirectory(prefix="buoy-suite-") as cache:
        code = run_pytest(cache, *options)
        failed = failed_tests(cache)
        if code != TESTS_FAILED or not 0 < len(failed) <= FEW:
            return code
        print(f"\nA second look, alone, at {len(failed)} failed: {', '.join(failed)}", flush=True)
        code = run_pytest(cache, "--last-failed", "--last-failed-no-failures=none")
        if code == 0:
            print(f"failed, then passed alone: {', '.join(failed)}; look for the race")
        return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
