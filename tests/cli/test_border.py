"""What the surroundings may do to the command: odd bytes, closed streams, deep files, an early Ctrl-C."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from buoy.config import configured_env, configured_stack, configured_store
from buoy.errors import BadInput

from .conftest import FLOWS, PATIENCE_S, Buoy

BUOY = [sys.executable, "-m", "buoy"]


@pytest.mark.parametrize(
    "words",
    [[b"signal", b"s1", b"x", b'"\xff"'], [b"cancel", b"s1", b"--reason", b"caf\xe9"], [b"answer", b"s1", b"caf\xe9"]],
    ids=["payload", "reason", "answer"],
)
def test_words_that_are_no_utf8_are_refused(buoy: Buoy, words: list[bytes]) -> None:
    buoy("start", f"{FLOWS}:sleeper", "--id", "s1")
    command = [*(word.encode() for word in BUOY), *words, b"--store", buoy.store.encode()]
    done = subprocess.run(command, capture_output=True, timeout=PATIENCE_S)
    assert done.returncode == 2
    assert done.stderr.startswith(b"error: an argument is not valid UTF-8: ")
    assert done.stderr.count(b"\n") == 1


@pytest.mark.parametrize("closed", [">&-", "2>&-", "<&-", ">&- 2>&- <&-"])
def test_a_closed_stream_breaks_nothing(buoy: Buoy, closed: str) -> None:
    buoy("start", f"{FLOWS}:sleeper", "--id", "s1")
    script = f'"{sys.executable}" -m buoy ps --store "{buoy.store}" {closed}'
    done = subprocess.run(["/bin/sh", "-c", script], capture_output=True, text=True, timeout=PATIENCE_S)
    assert (done.returncode, done.stderr) == (0, "")
    assert ("s1" in done.stdout) == (">&-" not in closed.split())
    assert "s1" in buoy("ps").stdout, "the store is whole"


def test_a_configuration_that_is_too_deep_is_refused(tmp_path: Path) -> None:
    (tmp_path / "buoy.toml").write_text("a = " + "[" * 20_000 + "]" * 20_000)
    with pytest.raises(BadInput, match="inside of each other"):
        configured_store(start=tmp_path)


@pytest.mark.parametrize("text", ["a\nb", "\x1b[31m", "caf\udce9", "x" * 200])
def test_a_stack_or_env_that_an_export_would_refuse_is_refused(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setenv("BUOY_STACK", text)
    monkeypatch.setenv("BUOY_ENV", text)
    with pytest.raises(BadInput, match=r"the stack .* is not allowed.*BUOY_STACK"):
        configured_stack()
    with pytest.raises(BadInput, match=r"the env .* is not allowed.*BUOY_ENV"):
        configured_env()


def test_a_run_is_not_started_under_such_a_name(buoy: Buoy, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BUOY_STACK", "a\tb")
    assert "the stack 'a\\tb' is not allowed" in buoy("start", f"{FLOWS}:sleeper", code=2).stderr


def test_the_default_store_is_found_from_a_folder_below(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("BUOY_STORE", raising=False)
    inner = tmp_path / "a" / "b"
    inner.mkdir(parents=True)
    assert configured_store(start=inner) == "sqlite:///.buoy/buoy.db"
    (tmp_path / ".buoy").mkdir()
    (tmp_path / ".buoy" / "buoy.db").touch()
    assert configured_store(start=inner) == f"sqlite:///{tmp_path}/.buoy/buoy.db"
    assert configured_store(start=tmp_path) == "sqlite:///.buoy/buoy.db"


def test_a_store_that_is_not_there_is_named_in_full(buoy: Buoy) -> None:
    done = subprocess.run([*BUOY, "ps"], capture_output=True, text=True, cwd=buoy.folder, env=_environment())
    assert done.returncode == 5
    assert f"no store at {buoy.folder}/.buoy/buoy.db" in done.stderr


@pytest.mark.parametrize(
    "module", ["click.core", "buoy.cli.terminal.program", "msgspec", "asyncio.events", "buoy.core.log.events"]
)
def test_an_early_interrupt_shows_no_traceback(buoy: Buoy, module: str) -> None:
    buoy("start", f"{FLOWS}:sleeper", "--id", "s1")
    command = [sys.executable, "-X", "importtime", "-m", "buoy", "why", "s1", "--store", buoy.store]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    told = ""
    for line in process.stderr:
        told += line
        if line.split("|")[-1].strip() == module:
            os.kill(process.pid, signal.SIGINT)
            break
    told += process.communicate(timeout=PATIENCE_S)[1]
    assert process.returncode in (0, 130, -signal.SIGINT)
    assert "Traceback" not in told


def _environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name != "BUOY_STORE"}
