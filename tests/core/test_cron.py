"""Cron: when it fires, and what is refused."""

from __future__ import annotations

from datetime import UTC, datetime, tzinfo
from itertools import islice, pairwise
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from buoy.core.schedule.cron import fire_before, fires_after, parse_cron
from buoy.errors import BadInput

BERLIN = ZoneInfo("Europe/Berlin")
FORM = "%Y-%m-%d %H:%M"


def at(text: str, zone: tzinfo = UTC) -> float:
    return datetime.strptime(text, FORM).replace(tzinfo=zone).timestamp()


def next_of(cron: str, begin: str, count: int = 1, zone: tzinfo = UTC) -> list[str]:
    found = islice(fires_after(parse_cron(cron), at(begin, zone), zone), count)
    return [datetime.fromtimestamp(each, zone).strftime(FORM) for each in found]


@pytest.mark.parametrize(
    ("cron", "begin", "expected"),
    [
        ("* * * * *", "2026-01-01 00:00", ["2026-01-01 00:01", "2026-01-01 00:02"]),
        ("*/15 * * * *", "2026-01-01 00:46", ["2026-01-01 01:00", "2026-01-01 01:15"]),
        ("0 3 * * *", "2026-01-01 03:00", ["2026-01-02 03:00", "2026-01-03 03:00"]),
        ("5,10-12 8-18/5 * * *", "2026-01-01 08:10", ["2026-01-01 08:11", "2026-01-01 08:12", "2026-01-01 13:05"]),
        ("0 0 31 * *", "2026-01-31 00:00", ["2026-03-31 00:00", "2026-05-31 00:00"]),
        ("0 0 L * *", "2026-01-31 00:00", ["2026-02-28 00:00", "2026-03-31 00:00", "2026-04-30 00:00"]),
        ("0 0 l 2 *", "2026-03-01 00:00", ["2027-02-28 00:00", "2028-02-29 00:00"]),
        ("0 0 15,L * *", "2026-02-01 00:00", ["2026-02-15 00:00", "2026-02-28 00:00"]),
        ("0 0 29 2 *", "2026-01-01 00:00", ["2028-02-29 00:00", "2032-02-29 00:00"]),
        ("0 0 29 feb *", "2096-03-01 00:00", ["2104-02-29 00:00"]),
        ("0 9 * * mon-fri", "2026-01-02 09:00", ["2026-01-05 09:00", "2026-01-06 09:00"]),
        ("0 9 * * MON,Fri", "2026-01-01 00:00", ["2026-01-02 09:00", "2026-01-05 09:00"]),
        ("0 0 * * 7", "2026-01-01 00:00", ["2026-01-04 00:00", "2026-01-11 00:00"]),
        ("0 0 * * 0", "2026-01-01 00:00", ["2026-01-04 00:00"]),
        ("0 0 * * 5-7", "2026-01-01 00:00", ["2026-01-02 00:00", "2026-01-03 00:00", "2026-01-04 00:00"]),
        ("0 0 1 jan,jul *", "2026-01-01 00:00", ["2026-07-01 00:00", "2027-01-01 00:00"]),
        # Both days restricted: one is enough.
        ("0 0 13 * fri", "2026-02-01 00:00", ["2026-02-06 00:00", "2026-02-13 00:00", "2026-02-20 00:00"]),
        ("0 0 30 2 mon", "2026-01-01 00:00", ["2026-02-02 00:00", "2026-02-09 00:00"]),
        ("0 0 * * fri#2", "2026-01-01 00:00", ["2026-01-09 00:00", "2026-02-13 00:00"]),
        ("5/15 0 * * *", "2026-01-01 00:00", ["2026-01-01 00:05", "2026-01-01 00:20"]),
        ("5-5/2 3-3/9 * * *", "2026-01-01 00:00", ["2026-01-01 03:05", "2026-01-02 03:05"]),
        ("@hourly", "2026-01-01 00:30", ["2026-01-01 01:00"]),
        ("@yearly", "2026-01-01 00:00", ["2027-01-01 00:00"]),
        ("59 23 31 12 *", "2026-12-31 23:58", ["2026-12-31 23:59", "2027-12-31 23:59"]),
    ],
)
def test_it_fires_when_it_should(cron: str, begin: str, expected: list[str]) -> None:
    assert next_of(cron, begin, len(expected)) == expected


@pytest.mark.parametrize(
    ("cron", "why"),
    [
        ("", "0 fields"),
        ("* * * *", "4 fields"),
        ("0 * * * * *", "seconds are not supported"),
        ("@reboot", "is unknown"),
        ("60 * * * *", "minute is wrong: '60'; use 0 to 59"),
        ("* 24 * * *", "hour is wrong"),
        ("* * 0 * *", "day of month is wrong"),
        ("* * 32 * *", "day of month is wrong"),
        ("* * * 13 *", "or jan to dec"),
        ("* * * * 8", "or sun to sat"),
        ("* * * * funday", "day of week is wrong"),
        ("5-1 * * * *", "with the smaller value first"),
        ("*/0 * * * *", "step"),
        ("*-5 * * * *", "minute is wrong"),
        ("1,,2 * * * *", "minute is wrong"),
        ("-1 * * * *", "minute is wrong"),
        ("1-2-3 * * * *", "minute is wrong"),
        ("? * * * *", "minute is wrong"),
        ("* * L-1 * *", "day of month is wrong"),
        ("* * * L *", "month is wrong"),
        ("0 0 30 2 *", "never fires"),
        ("0 0 31 4,6,9,11 *", "never fires"),
        ("٣ * * * *", "minute is wrong"),
        ("9999999999999999999999 * * * *", "minute is wrong"),
        ("9" * 5000 + " * * * *", "too long: 5008 characters"),
    ],
)
def test_nonsense_is_refused_with_the_reason(cron: str, why: str) -> None:
    with pytest.raises(BadInput, match="cron") as error:
        parse_cron(cron)
    assert why in str(error.value)


def test_a_time_that_the_clocks_leave_out_fires_later_the_same_day() -> None:
    found = next_of("30 2 * * *", "2026-03-28 12:00", 2, BERLIN)
    assert found == ["2026-03-29 03:30", "2026-03-30 02:30"]


def test_a_time_that_happens_twice_fires_once() -> None:
    found = list(islice(fires_after(parse_cron("30 2 * * *"), at("2026-10-24 12:00", BERLIN), BERLIN), 2))
    assert found == [at("2026-10-25 00:30"), at("2026-10-26 01:30")]


def test_a_schedule_of_every_hour_goes_by_real_hours() -> None:
    for day in ("2026-10-24 20:00", "2026-03-28 20:00"):
        begin = at(day, BERLIN)
        found = list(islice(fires_after(parse_cron("0 * * * *"), begin, BERLIN), 12))
        assert found == [begin + 3600.0 * number for number in range(1, 13)]


def test_a_change_of_clocks_by_half_an_hour_loses_no_time() -> None:
    zone = ZoneInfo("Australia/Lord_Howe")
    assert next_of("*/30 6 * * *", "2025-04-06 00:00", 3, zone) == [
        "2025-04-06 06:00",
        "2025-04-06 06:30",
        "2025-04-07 06:00",
    ]


FIELD = st.sampled_from(["*", "*/7", "0", "5", "1-5", "2,4"])


@given(
    st.builds(lambda *words: " ".join(words), FIELD, FIELD, st.sampled_from(["*", "1", "L", "15-20"]),
              st.sampled_from(["*", "2", "1-6/2"]), st.sampled_from(["*", "mon", "5-7"])),
    st.integers(1_600_000_000, 2_000_000_000),
    st.sampled_from([UTC, BERLIN, ZoneInfo("America/New_York"), ZoneInfo("Asia/Kathmandu")]),
)  # fmt: skip
def test_times_only_grow_and_the_last_one_is_found_back(text: str, begin: int, zone: tzinfo) -> None:
    cron = parse_cron(text)
    found = list(islice(fires_after(cron, float(begin), zone), 5))
    assert found == sorted(set(found))
    assert found[0] > begin
    for before, after in pairwise(found):
        assert fire_before(cron, after - 1.0, zone) == before
        assert fire_before(cron, after, zone) == after
    assert all(each % 60 == 0 for each in found)
