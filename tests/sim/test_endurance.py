"""A long simulation ends in time, judges every seed, and continues the next time where it ended."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from simulator.command import STORES, main
from simulator.endurance import endure, next_seed
from simulator.seed import Verdict

from buoy.errors import BadInput


@pytest.mark.timeout(300)
def test_a_long_run_goes_on_where_it_ended(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file, seen = tmp_path / "state" / "next", list[Verdict]()
    first = endure(0.1, 2, file, STORES, seen.append)
    assert (first.first, first.next) == (1, next_seed(file))
    assert sorted(verdict.seed for verdict in seen) == list(range(1, first.next))
    assert all(verdict.store == STORES[verdict.seed % 2] for verdict in seen)
    assert first.totals.seeds == len(seen) > 0

    told = ["--time", "100ms", "--jobs", "1", "--state", str(file)]
    assert main(told) == 0
    out = capsys.readouterr().out
    assert f"seeds {first.next} to {next_seed(file) - 1} in " in out
    assert " per second; the next run begins at seed " in out
    assert "every promise was kept" in out

    assert main([*told, "--start", "5", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["first"], found["next"]) == (5, next_seed(file))


def test_a_file_without_a_seed_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "next"
    assert next_seed(file) == 1
    file.write_text("soon")
    with pytest.raises(BadInput, match="must hold the number of a seed: 'soon'; correct or remove it"):
        next_seed(file)


@pytest.mark.parametrize("words", [["--time", "soon"], ["--time", "1s", "--jobs", "0"]])
def test_a_wrong_option_is_refused(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(words)
    assert ended.value.code == 2
    assert "error: argument --" in capsys.readouterr().err
