"""Kinds of file systems by a list of mounts, as Linux writes it."""

from __future__ import annotations

from pathlib import Path

import pytest

from buoy.host import network_disk
from buoy.host.network_disk import kind_of, network_kind

MOUNTS = r"""
22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda1 rw
30 22 0:35 / /data rw,nosuid shared:9 - nfs4 filer:/data rw,vers=4.2
31 22 0:36 / /scratch rw,noatime - lustre mds@tcp:/scratch rw,flock
32 30 254:5 / /data/local rw - xfs /dev/vdb rw
33 22 0:40 / /my\040disk rw - gpfs fs1 rw
34 22 0:41 / /tmp rw - tmpfs tmpfs rw
35 22 0:42 / /tmp rw shared:3 master:1 - beegfs beegfs_nodev rw
a line that is no mount
"""


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/srv/buoy.db", "ext4"),
        ("/data/ann/buoy.db", "nfs4"),
        ("/data/local/buoy.db", "xfs"),
        ("/datas/buoy.db", "ext4"),
        ("/scratch/run/store", "lustre"),
        ("/my disk/buoy.db", "gpfs"),
        ("/tmp/buoy.db", "beegfs"),
    ],
)
def test_the_nearest_and_last_mount_tells_the_kind(path: str, kind: str) -> None:
    assert kind_of(MOUNTS, Path(path)) == kind


def test_only_kinds_that_several_machines_share_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mounts").write_text(MOUNTS)
    monkeypatch.setattr(network_disk, "MOUNTS", tmp_path / "mounts")
    assert network_kind(Path("/scratch/buoy.db")) == "lustre" and network_kind(Path("/srv/buoy.db")) is None
    monkeypatch.setattr(network_disk, "MOUNTS", tmp_path / "absent")
    assert network_kind(Path("/scratch/buoy.db")) is None
