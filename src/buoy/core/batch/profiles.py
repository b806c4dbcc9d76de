"""Profiles of clusters: their partitions as TOML, read, written, and made of what a live cluster says. Pure.

Invariants: a profile that cannot be read whole is refused with its place. So is an unknown key: a setting that is
silently ignored is worse than none. What is written can be read back.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping

import msgspec

from buoy.core.batch.slurm_text import Partition
from buoy.core.durations import seconds
from buoy.core.spec.values import memory_bytes
from buoy.errors import BadInput


class ProfilePartition(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True, kw_only=True):
    """One kind of node. `by_name`: used only if a person names it. Without a walltime there is no limit."""

    name: str
    cpus: int
    memory: str
    gpus: int = 0
    nodes: int = 1
    walltime: str | None = None
    default: bool = False
    by_name: bool = False


class Profile(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True, kw_only=True):
    """A cluster. It is recognised by Slurm's name for it, or by variables of the environment."""

    name: str
    partitions: tuple[ProfilePartition, ...]
    title: str = ""
    cluster: str = ""
    environment: dict[str, str] = {}
    account: str | None = None

    def kinds(self) -> tuple[Partition, ...]:
        """Its partitions, as those of a live cluster are."""
        return tuple(_kind(each) for each in self.partitions)

    def fits(self, cluster: str | None, environment: Mapping[str, str]) -> bool:
        """Whether this is the profile of that cluster."""
        if self.environment and all(environment.get(name) == value for name, value in self.environment.items()):
            return True
        return bool(self.cluster) and self.cluster == cluster


def read_profile(text: str, where: str) -> Profile:
    """The profile of a file, or a refusal that names it."""
    try:
        found = msgspec.convert(tomllib.loads(text), Profile)
        if not found.partitions:
            raise BadInput("expected at least one partition, found none")
        found.kinds()
    except (tomllib.TOMLDecodeError, msgspec.ValidationError, BadInput) as error:
        raise BadInput(f"profile {where} cannot be read: {error}; correct it") from error
    return found


def live_profile(name: str, partitions: Iterable[Partition]) -> Profile:
    """What a live cluster says about itself, as a profile."""
    made = tuple(
        ProfilePartition(
            name=each.name,
            cpus=each.cpus,
            memory=f"{each.memory_bytes // 2**20}MiB",
            gpus=each.gpus,
            nodes=each.nodes,
            walltime=None if each.time_max_s is None else f"{each.time_max_s:.0f}s",
            default=each.default,
        )
        for each in partitions
        if each.up
    )
    if not made:
        raise BadInput("the cluster shows no partition that is up; ask again later")
    return Profile(name=name, title=f"made of what Slurm says about {name}", cluster=name, partitions=made)


def profile_text(profile: Profile) -> str:
    """A profile as TOML."""
    lines = _pairs({name: getattr(profile, name) for name in ("name", "title", "cluster", "account")})
    if profile.environment:
        inner = ", ".join(_pairs(dict(profile.environment)))
        lines.append(f"environment = {{{inner}}}")
    for each in profile.partitions:
        lines += ["", "[[partitions]]", *_pairs(msgspec.to_builtins(each))]
    return "\n".join(lines) + "\n"


def _pairs(values: Mapping[str, object]) -> list[str]:
    # A basic string of TOML and a string of JSON are written alike.
    return [
        f"{name} = {msgspec.json.encode(value).decode()}" for name, value in values.items() if value not in (None, "")
    ]


def _kind(each: ProfilePartition) -> Partition:
    memory = memory_bytes(each.memory)
    if each.cpus < 1 or each.gpus < 0 or each.nodes < 1:
        raise BadInput(
            f"partition {each.name!r}: expected at least one cpu and one node; found {each.cpus}, {each.nodes}"
        )
    return Partition(
        name=each.name,
        cpus=each.cpus,
        memory_bytes=memory,
        gpus=each.gpus,
        nodes=each.nodes,
        time_max_s=None if each.walltime is None else seconds(each.walltime),
        default=each.default,
        by_name=each.by_name,
    )
