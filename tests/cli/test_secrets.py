"""A password or a token in the URL of a store: it is shown by no command, no error and no advice."""

from __future__ import annotations

import traceback
from pathlib import Path

import pytest
from click.testing import CliRunner

from buoy.cli.main import main
from buoy.cli.terminal.program import wording
from buoy.config import log_folder
from buoy.core.urls import shown_url

from .conftest import FLOWS

SECRET = "hunter2"
URLS = [
    f"postgresql://user:{SECRET}@127.0.0.1:9/runs",
    f"postgresql://127.0.0.1:9/runs?user=u&password={SECRET}",
    f"postgresql://user:{SECRET}@127.0.0.1:9,127.0.0.1:10/runs?target_session_attrs=read-write",
    f"https://{SECRET}@127.0.0.1:9/",
    f"s3://key:a/b?{SECRET}@bucket/prefix",
    f"unknown://user:{SECRET}@place",
]
COMMANDS = [
    ["status"],
    ["doctor"],
    ["ps"],
    ["why", "r"],
    ["sweeper", "--once"],
    ["worker", str(FLOWS), "--until-idle"],  # without it, a worker waits for its store
    ["run", f"{FLOWS}:divide", "--arg", "number=1"],
    ["service"],
]


@pytest.mark.parametrize("url", URLS)
@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command[0])
def test_no_command_shows_a_secret(url: str, command: list[str]) -> None:
    for more in ((), ("--json",)):
        found = CliRunner().invoke(main, [*command, "--store", url, *more])
        assert found.exit_code not in (0, None) and isinstance(found.exception, SystemExit)
        assert SECRET not in found.output


def test_neither_the_environment_nor_the_file_shows_a_secret(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("BUOY_STORE", URLS[0] + "\t")
    assert SECRET not in CliRunner().invoke(main, ["status"]).output
    monkeypatch.delenv("BUOY_STORE")
    (tmp_path / "buoy.toml").write_text(f'store = "{URLS[0]}"\n')
    found = CliRunner().invoke(main, ["status"])
    assert found.exit_code != 0 and "127.0.0.1" in found.output and SECRET not in found.output


@pytest.mark.parametrize(
    "url",
    [
        f"postgresql://user:a@{SECRET}@127.0.0.1:9/runs",
        f"postgresql://user:a/{SECRET}@127.0.0.1:9/runs",
        f"postgresql://user:{SECRET}/a@127.0.0.1:9/runs",
        f"postgresql://user:a?{SECRET}@127.0.0.1:9/runs",
        f"postgresql://user:a?{SECRET}=@127.0.0.1:9/runs",
        f"postgresql://127.0.0.1:9/runs?password=a&{SECRET}=b",
        f"postgresql://user:{SECRET}%zz@127.0.0.1:9/runs",
        f"host=127.0.0.1 port=9 password={SECRET}",
        f"host=127.0.0.1 port=9 password = 'a {SECRET}'",
    ],
)
def test_a_password_that_is_not_quoted_is_refused_and_not_shown(url: str) -> None:
    found = CliRunner().invoke(main, ["ps", "--store", url])
    assert found.exit_code == 2, found.output
    assert SECRET not in found.output


def test_libpq_s_own_places_of_a_password_show_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    services, passwords, trace = tmp_path / "services", tmp_path / "passwords", tmp_path / "trace"
    services.write_text(f"[harbour]\nhost=127.0.0.1\nport=9\nuser=u\npassword={SECRET}\n")
    passwords.write_text(f"*:*:*:*:{SECRET}\n")
    passwords.chmod(0o600)
    variables = {"PGSERVICEFILE": services, "PGPASSFILE": passwords, "PGPASSWORD": SECRET, "BUOY_TRACE": trace}
    for name, value in variables.items():
        monkeypatch.setenv(name, str(value))
    for url in ("postgresql://?service=harbour", "postgresql://u@127.0.0.1:9/x"):
        found = CliRunner().invoke(main, ["doctor", "--store", url])
        assert found.exit_code == 5 and "no connection to" in found.output
        assert SECRET not in found.output
        cause: BaseException | None = found.exception
        while cause is not None:
            assert SECRET not in "".join(traceback.format_exception(cause))
            cause = cause.__cause__ or cause.__context__
    assert not trace.exists() or SECRET not in trace.read_text()


def test_what_is_shown_still_tells_the_place() -> None:
    assert [shown_url(url) for url in URLS] == [
        "postgresql://127.0.0.1:9/runs",
        "postgresql://127.0.0.1:9/runs",
        "postgresql://127.0.0.1:9,127.0.0.1:10/runs",
        "https://127.0.0.1:9/",
        "s3://bucket/prefix",
        "unknown://place",
    ]
    for local in ("sqlite:////a@b/runs.db", "file:///dir?x", "runs.db", "memory:///m"):
        assert shown_url(local) == local
    assert SECRET not in str(wording(URLS[0], str))
    assert SECRET not in str(log_folder(shown_url(URLS[0])))


@pytest.mark.parametrize(
    ("url", "named"),
    [
        ("s3://b/p?endpoint=http://127.0.0.1:9&region=eu", "s3://b/p?endpoint=http://127.0.0.1:9&region=eu"),
        ("s3://b/p?path_style=false&profile=work&timeout=5", "s3://b/p?path_style=false&profile=work&timeout=5"),
        (f"s3://b/p?region=eu&token={SECRET}&{SECRET}", "s3://b/p?region=eu"),
        (f"s3://b/p?endpoint=http://u:{SECRET}@127.0.0.1:9", "s3://127.0.0.1:9"),
        (f"postgresql://127.0.0.1:9/runs?region={SECRET}", "postgresql://127.0.0.1:9/runs"),
        (f"postgresql://u:{SECRET}@db/runs?schema=two&password={SECRET}", "postgresql://u@db/runs?schema=two"),
        ("postgresql:///runs?host=/run/pg&user=u&schema=two", "postgresql:///runs?host=/run/pg&user=u&schema=two"),
        ("postgresql://?service=jobs&schema=two", "postgresql://?service=jobs&schema=two"),
        (f"postgresql://u:a@{SECRET}@db/runs", "postgresql://db/runs"),
        (f"postgresql://u:{SECRET}/a@db/runs", "postgresql://db/runs"),
        (f"postgresql://u:{SECRET}?host=a@db/runs", "postgresql://db/runs"),
    ],
)
def test_advice_names_what_reaches_the_store_and_no_secret(url: str, named: str) -> None:
    """Without its endpoint the advised command would speak to AWS, without its schema to another installation."""
    assert wording(url, str).store == named
