"""Profiles of clusters: read, written, made of a live cluster, and used to choose a partition."""

from __future__ import annotations

from pathlib import Path

import pytest

from buoy.core.batch.profiles import Profile, ProfilePartition, live_profile, profile_text, read_profile
from buoy.core.batch.sizing import Wishes, scheduler_for
from buoy.core.batch.slurm_text import read_cluster_name, read_sinfo
from buoy.core.spec.model import Resources
from buoy.errors import BadInput
from buoy.host.profile_files import known_profiles, named_profile

GIB = 2**30
HOUR = 3_600.0


@pytest.fixture
def kestrel(tmp_path: Path) -> Profile:
    return known_profiles(tmp_path)["kestrel"].profile


@pytest.mark.parametrize(
    ("needed", "walltime_s", "partition"),
    [
        (Resources(cpus=4), None, "short"),
        (Resources(cpus=4), 24 * HOUR, "standard"),
        (Resources(cpus=4, time_s=30 * HOUR), None, "standard"),
        (Resources(cpus=4), 72 * HOUR, "long"),
        (Resources(memory_bytes=500 * GIB), None, "medmem"),
        (Resources(memory_bytes=1_500 * GIB), None, "bigmem"),
        (Resources(memory_bytes=1_500 * GIB), 72 * HOUR, "bigmeml"),
        (Resources(gpus=1), None, "gpu-h100s"),
        (Resources(gpus=4), 40 * HOUR, "gpu-h100"),
        (Resources(cpus=120), None, "gpu-h100s"),
    ],
)
def test_the_partition_follows_from_resources_and_walltime(
    kestrel: Profile, needed: Resources, walltime_s: float | None, partition: str
) -> None:
    wishes = Wishes(walltime_s=walltime_s)
    found = scheduler_for("x", needed, 1, deferred=False, wishes=wishes, partitions=kestrel.kinds())
    assert found.partition == partition


def test_a_partition_that_is_used_by_name_only_is_used_if_it_is_named(kestrel: Profile) -> None:
    wishes = Wishes(partition="debug")
    found = scheduler_for("x", Resources(), 1, deferred=False, wishes=wishes, partitions=kestrel.kinds())
    assert found.partition == "debug"


def test_a_cluster_is_recognised_by_its_name_or_by_the_environment(kestrel: Profile) -> None:
    assert kestrel.fits("kestrel", {}) and kestrel.fits(None, {"NREL_CLUSTER": "kestrel"})
    assert not kestrel.fits("pond", {"NREL_CLUSTER": "swift"})
    assert not Profile(name="x", partitions=()).fits(None, {})


def test_a_profile_of_a_live_cluster_can_be_read_back() -> None:
    said = "main*|4|4000|(null)|1:00:00|2|up\ngpu|128|512000+|gpu:a100:4|infinite|8|up\nold|8|1|(null)|1:00|1|down\n"
    made = live_profile("pond", read_sinfo(said))
    assert read_profile(profile_text(made), "here") == made
    assert [(each.name, each.gpus, each.time_max_s, each.default) for each in made.kinds()] == [
        ("main", 0, 3_600.0, True),
        ("gpu", 4, None, False),
    ]


def test_what_is_written_has_every_key() -> None:
    part = ProfilePartition(name='a "b"', cpus=2, memory="1GiB", gpus=1, nodes=3, walltime="1h", by_name=True)
    made = Profile(name="x", partitions=(part,), title="é", cluster="c", environment={"A": "1"}, account="bio")
    assert read_profile(profile_text(made), "here") == made


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("name = ", "profile f cannot be read"),
        ("name = 'x'\npartitions = []", "expected at least one partition"),
        ("name = 'x'\npartition = []", "unknown field `partition`"),
        ("name = 'x'\n[[partitions]]\nname = 'a'\ncpus = 0\nmemory = '1GiB'", "at least one cpu"),
        ("name = 'x'\n[[partitions]]\nname = 'a'\ncpus = 1\nmemory = 'much'", "much"),
        ("name = 'x'\n[[partitions]]\nname = 'a'\ncpus = 1\nmemory = '1GiB'\nwalltime = 'x'", "duration"),
        ("name = 'x'\n[[partitions]]\nname = 'a'\ncpus = 1\nmemory = '1GiB'\nwall = '1h'", "unknown field `wall`"),
    ],
)
def test_a_bad_profile_is_refused_with_its_reason(text: str, why: str) -> None:
    with pytest.raises(BadInput, match=why):
        read_profile(text, "f")


def test_a_profile_of_the_user_comes_before_a_shipped_one(tmp_path: Path) -> None:
    text = "name = 'kestrel'\n[[partitions]]\nname = 'mine'\ncpus = 1\nmemory = '1GiB'\n"
    (tmp_path / "kestrel.toml").write_text(text)
    found = named_profile(tmp_path, "kestrel")
    assert (found.shipped, found.profile.partitions[0].name) == (False, "mine")
    with pytest.raises(BadInput, match="unknown profile 'kestrell'; did you mean 'kestrel'"):
        named_profile(tmp_path, "kestrell")


def test_the_name_of_a_cluster_is_a_line_of_its_settings() -> None:
    assert read_cluster_name("Configuration data as of today\nClusterName             = pond\nX = y\n") == "pond"
    assert read_cluster_name("ClusterName = \n") is None
