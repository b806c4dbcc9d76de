"""Where the store is found, and what a configuration file may say."""

from __future__ import annotations

from pathlib import Path

import pytest

from buoy.config import DEFAULT_STORE, configured_store, load_settings, store_path
from buoy.errors import BadInput


@pytest.fixture(autouse=True)
def no_store_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("BUOY_STORE", raising=False)


def test_the_nearest_source_decides_about_the_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert configured_store(start=tmp_path) == DEFAULT_STORE
    (tmp_path / "buoy.toml").write_text('store = "sqlite:///runs.db"\n')
    inner = tmp_path / "a" / "b"
    inner.mkdir(parents=True)
    assert configured_store(start=inner) == f"sqlite:///{tmp_path}/runs.db"
    monkeypatch.setenv("BUOY_STORE", "sqlite:///env.db")
    assert configured_store(start=inner) == "sqlite:///env.db"
    assert configured_store("sqlite:///chosen.db", start=inner) == "sqlite:///chosen.db"


@pytest.mark.parametrize(
    ("store", "found"),
    [
        ("sqlite:////var/runs.db", "sqlite:////var/runs.db"),
        ("runs.db", "{}/runs.db"),
        ("file:///var/runs", "file:///var/runs"),
        ("postgresql://host/db", "postgresql://host/db"),
    ],
)
def test_only_relative_paths_count_from_the_file(tmp_path: Path, store: str, found: str) -> None:
    (tmp_path / "buoy.toml").write_text(f'store = "{store}"\n')
    assert load_settings(tmp_path).store == found.format(tmp_path)


def test_worker_files_count_from_the_file_and_modules_stay(tmp_path: Path) -> None:
    (tmp_path / "buoy.toml").write_text('[worker]\nfiles = ["flows.py", "package.module"]\n')
    assert load_settings(tmp_path).worker.files == (str(tmp_path / "flows.py"), "package.module")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("stor = 'x'\n", "`stor`"),
        ("store = 5\n", "`$.store`"),
        ("[worker]\nfiles = 'flows.py'\n", "`$.worker.files`"),
        ("[worker]\nfile = ['flows.py']\n", "`file` - at `$.worker`"),
        ("store = \n", "is not TOML"),
    ],
)
def test_a_wrong_configuration_is_refused_with_file_and_key(tmp_path: Path, text: str, reason: str) -> None:
    (tmp_path / "buoy.toml").write_text(text)
    with pytest.raises(BadInput) as refused:
        load_settings(tmp_path)
    assert str(tmp_path / "buoy.toml") in str(refused.value)
    assert reason in str(refused.value)


@pytest.mark.parametrize(
    ("url", "path"),
    [
        ("sqlite:///runs.db", Path("runs.db")),
        ("sqlite:////var/runs.db", Path("/var/runs.db")),
        ("file:///var/runs", Path("/var/runs")),
        ("runs.db", Path("runs.db")),
        ("postgresql://host/db", None),
    ],
)
def test_the_place_of_a_store_is_known_where_it_has_one(url: str, path: Path | None) -> None:
    assert store_path(url) == path
