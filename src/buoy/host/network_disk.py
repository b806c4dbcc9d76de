"""Network disks: which kind of file system a path is on, by the mounts of this machine.

Invariant: a kind that is not in the table counts as a disk of this machine. Nothing is refused on a guess.
"""

from __future__ import annotations

import re
from pathlib import Path

MOUNTS = Path("/proc/self/mountinfo")
# File systems that several machines mount at once. Not 9p and virtiofs: a virtual machine has these from its host.
_SHARED = frozenset(
    {"afs", "beegfs", "ceph", "cifs", "fhgfs", "fuse.ceph", "fuse.glusterfs", "fuse.sshfs", "gfs2", "glusterfs", "gpfs",
     "lustre", "nfs", "nfs4", "ocfs2", "orangefs", "panfs", "pvfs2", "smb3", "smbfs", "wekafs"}
)  # fmt: skip
_ESCAPE = re.compile(r"\\([0-7]{3})")


def network_kind(path: Path) -> str | None:
    """The kind of network file system that a path is on; None: it is on a disk of this machine, or that is unknown."""
    try:
        text = MOUNTS.read_text(errors="replace")
    except OSError:
        return None
    kind = kind_of(text, path.resolve())
    return kind if kind in _SHARED else None


def kind_of(mounts: str, path: Path) -> str | None:
    """The file system of a path, by a text as /proc/self/mountinfo has it. A later mount hides an earlier one."""
    found: tuple[int, str] | None = None
    for line in mounts.splitlines():
        before, _, after = line.partition(" - ")
        fields, kinds = before.split(), after.split()
        if len(fields) < 5 or not kinds:
            continue
        point = Path(_ESCAPE.sub(lambda each: chr(int(each[1], 8)), fields[4]))
        if path.is_relative_to(point) and (found is None or len(point.parts) >= found[0]):
            found = len(point.parts), kinds[0]
    return None if found is None else found[1]
