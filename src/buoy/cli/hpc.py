"""`buoy hpc`: profiles of clusters."""

from __future__ import annotations

import click

from buoy.cli.terminal.output import print_json
from buoy.cli.terminal.program import Exit, go, shared_options
from buoy.core.batch.profiles import Profile, profile_text
from buoy.core.batch.slurm_text import span_text
from buoy.core.log.wording import counted
from buoy.wiring.slurm import all_profiles, detected_profile, made_profile, one_profile

_LIVE = "live"


@click.group("hpc")
def hpc_group() -> None:
    """Show profiles of clusters: partitions, nodes and time limits. Each command takes --store and --json.

    A profile is a TOML file. `kestrel` ships with Buoy; those in `~/.config/buoy/profiles` come first. Commands that
    plan allocations take one by --profile. Without it they ask Slurm itself.

    \b
    Example:
      buoy hpc show live > ~/.config/buoy/profiles/mine.toml

    Exit code: 0 done, 1 no profile fits this cluster, 2 bad input, 5 Slurm unusable.
    """


@hpc_group.command("profiles")
@shared_options
def profiles(store: str | None, as_json: bool) -> int:
    """List the known profiles."""
    found = all_profiles()
    if as_json:
        print_json(
            {"profiles": [{"shipped": each.shipped, "path": each.path, "profile": each.profile} for each in found]}
        )
        return Exit.OK
    for each in found:
        place = "shipped" if each.shipped else each.path
        partitions = counted(len(each.profile.partitions), "partition")
        click.echo(f"{each.profile.name}  {each.profile.title or '-'}  {partitions}  {place}")
    return Exit.OK


@hpc_group.command("detect")
@shared_options
def detect(store: str | None, as_json: bool) -> int:
    """Name the profile of this cluster, by Slurm's name for it or by variables of the environment."""
    cluster, found = go(detected_profile())
    if as_json:
        print_json({"cluster": cluster, "profile": None if found is None else found.profile.name})
    elif found is not None:
        click.echo(found.profile.name)
    else:
        where = f"the cluster {cluster}" if cluster else "this machine, which has no Slurm"
        click.echo(f"no profile fits {where}; `buoy hpc show live` makes one of what Slurm says", err=True)
    return Exit.OK if found is not None else Exit.FAILED


@hpc_group.command("show")
@click.argument("name")
@shared_options
def show(name: str, store: str | None, as_json: bool) -> int:
    """Show a profile as TOML. The name `live` makes one of what Slurm says about this cluster."""
    found = go(made_profile()) if name == _LIVE else one_profile(name).profile
    if as_json:
        print_json(found)
    else:
        click.echo(profile_text(found), nl=False)
        click.echo("\n".join(_summary(found)), err=True)
    return Exit.OK


def _summary(profile: Profile) -> list[str]:
    return [
        f"{each.name}: {each.cpus} cpus, {each.memory_bytes / 2**30:.0f} GiB, {each.gpus} gpus, {each.nodes} nodes, "
        + ("no time limit" if each.time_max_s is None else f"up to {span_text(each.time_max_s)}")
        for each in profile.kinds()
    ]
