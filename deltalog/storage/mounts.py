"""Detects network file systems and mount points."""

from __future__ import annotations

import os
import re

_MOUNTS = "/proc/self/mountinfo"
_ESCAPED = re.compile(r"\\([0-7]{3})")
# File systems that several machines or kernels share, across which locks and memory maps do not work.
_NETWORK = frozenset(
    {
        "9p",
        "afs",
        "ceph",
        "cifs",
        "coda",
        "fhgfs",
        "beegfs",
        "gfs2",
        "gpfs",
        "glusterfs",
        "lustre",
        "ncpfs",
        "nfs",
        "nfs4",
    }
    | {
        "ocfs2",
        "orangefs",
        "panfs",
        "prl_fs",
        "pvfs2",
        "smb2",
        "smb3",
        "smbfs",
        "vboxsf",
        "virtiofs",
        "vmhgfs",
        "wekafs",
    }
)
# FUSE file systems whose files are on a local disk. All others may be remote.
_LOCAL_FUSE = frozenset(
    {"fuseblk", "fuse.fuse-overlayfs", "fuse.ntfs-3g", "fuse.exfat", "fuse.mergerfs", "fuse.gocryptfs"}
)


def network_file_system(path: str) -> str | None:
    """The type of the file system that contains an absolute path, such as ``nfs4``, if other machines may share it;
    None if it is local. Works only on Linux; elsewhere None. Cost: one small file read."""
    try:
        with open(_MOUNTS, encoding="utf-8", errors="surrogateescape") as file:
            kind = _kind_of(os.path.realpath(path), file.read())
    except OSError:
        return None
    is_network = kind in _NETWORK or (kind.startswith("fuse") and kind not in _LOCAL_FUSE)
    return kind if is_network else None


def mount_points_below(path: str) -> frozenset[str]:
    """The absolute paths of all mount points below a resolved path, including bind mounts of the same disk. Works only
    on Linux; empty on other systems. Cost: one small file read."""
    try:
        with open(_MOUNTS, encoding="utf-8", errors="surrogateescape") as file:
            points = [_unescaped(line.split(" ")[4]) for line in file if line.count(" ") > 4]
    except OSError:
        return frozenset()
    root = f"{path.rstrip('/')}/"
    return frozenset(point for point in points if point.startswith(root))


def _unescaped(point: str) -> str:
    return _ESCAPED.sub(lambda match: chr(int(match[1], 8)), point)


def _kind_of(path: str, mounts: str) -> str:
    """The type of the mount that contains ``path``: of all mount points at or above ``path``, the longest one counts;
    if several mounts are stacked there, the last one. Empty if there is none."""
    best, kind = "", ""
    for line in mounts.splitlines():
        left, _, right = line.partition(" - ")
        fields = left.split(" ")
        if len(fields) < 5 or not right:
            continue
        point = _unescaped(fields[4]).rstrip("/")
        if (path == point or path.startswith(f"{point}/")) and len(point) >= len(best):
            best, kind = point, right.split(" ")[0]
    return kind
