"""Files of profiles: those that ship with Buoy, and those of this user, which come first."""

from __future__ import annotations

from pathlib import Path

import msgspec

from buoy.core.batch.profiles import Profile, read_profile
from buoy.core.spec.problems import names
from buoy.errors import BadInput

_SHIPPED = Path(__file__).with_name("profiles")


class KnownProfile(msgspec.Struct, frozen=True):
    """A profile, and the file that has it. `shipped`: it came with Buoy."""

    profile: Profile
    path: str
    shipped: bool


def known_profiles(folder: Path) -> dict[str, KnownProfile]:
    """All profiles by name. One of the user replaces a shipped one of its name."""
    found: dict[str, KnownProfile] = {}
    for place, shipped in ((_SHIPPED, True), (folder, False)):
        for path in sorted(place.glob("*.toml")):
            try:
                profile = read_profile(path.read_text(), str(path))
            except (OSError, UnicodeDecodeError) as error:
                raise BadInput(f"profile {path} cannot be read: {error}; correct it, or remove it") from error
            found[profile.name] = KnownProfile(profile, str(path), shipped)
    return found


def named_profile(folder: Path, name: str) -> KnownProfile:
    """That profile, or a refusal that names those that are there."""
    found = known_profiles(folder)
    if name not in found:
        raise BadInput(f"unknown profile {name!r}; {names(found, name)}; or put {name}.toml into {folder}")
    return found[name]
