"""Detects network file systems and mount points."""

from __future__ import annotations

import contextlib
import os
import re
import sys
from typing import TYPE_CHECKING

from deltalog.lazy_names import lazy_modules
from deltalog.storage import windows_paths

if TYPE_CHECKING:
    import subprocess
else:
    lazy_modules(__name__, subprocess="subprocess")

_MOUNTS = "/proc/self/mountinfo"
_MACOS_COMMAND = ("/sbin/mount",)
_MACOS_SECONDS = 10
_MACOS_LINE = re.compile(r".+? on (?P<point>/.*) \((?P<kind>[^,()]+)(?P<flags>[^()]*)\)")
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


def network_file_system(path: str, system: str = sys.platform) -> str | None:
    """The type of the file system that contains an absolute path, such as ``nfs4``, if other machines may share it;
    None if it is local. Works on Linux and macOS; on other systems None, except for ``\\\\server\\share`` on Windows.
    Cost: one small file read; on macOS, one process."""
    real = os.path.realpath(path)
    if system == "darwin":
        return _network_kind_on_macos(real, _macos_mounts())
    if system == "win32":
        return "a network share" if windows_paths.is_on_network(real) else None
    try:
        with open(_MOUNTS, encoding="utf-8", errors="surrogateescape") as file:
            kind = _kind_of(real, file.read())
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


def _macos_mounts() -> str:
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        return subprocess.run(
            _MACOS_COMMAND, capture_output=True, text=True, errors="surrogateescape", timeout=_MACOS_SECONDS, check=True
        ).stdout
    return ""


def _network_kind_on_macos(path: str, mounts: str) -> str | None:
    """As ``network_file_system``, from what the command ``mount`` of macOS prints. It marks local file systems."""
    best, kind = "", None
    for line in mounts.splitlines():
        found = _MACOS_LINE.fullmatch(line)
        if found is None:
            continue
        point = found["point"].rstrip("/")
        if (path == point or path.startswith(f"{point}/")) and len(point) >= len(best):
            is_local = "local" in found["flags"].split(", ")
            best, kind = point, None if is_local else found["kind"]
    return kind


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
