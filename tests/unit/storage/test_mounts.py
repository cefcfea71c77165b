"""Network file systems are found on macOS and Windows too."""

from __future__ import annotations

import os
import sys

import pytest

from deltalog.storage import mounts

MOUNT = """\
/dev/disk3s1s1 on / (apfs, sealed, local, read-only, journaled)
devfs on /dev (devfs, local, nobrowse)
/dev/disk3s5 on /System/Volumes/Data (apfs, local, journaled, nobrowse, protect, root data)
map auto_home on /System/Volumes/Data/home (autofs, automounted, nobrowse)
//ann@files.example/team%20data on /Volumes/team data (smbfs, nodev, nosuid, mounted by ann)
files.example:/export on /Volumes/nfs (nfs, asynchronous)
/dev/disk5s1 on /Volumes/nfs/disk on disk (hfs, local, nodev, nosuid, journaled, noowners)
"""


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/Users/ann/catalog.db", None),
        ("/System/Volumes/Data/x", None),
        ("/Volumes/team data/catalog.db", "smbfs"),
        ("/Volumes/team database/catalog.db", None),
        ("/Volumes/nfs", "nfs"),
        ("/Volumes/nfs/a/b", "nfs"),
        ("/Volumes/nfs/disk on disk/a", None),
        ("/System/Volumes/Data/home/ann", "autofs"),
    ],
)
def test_what_the_command_mount_of_macos_prints(monkeypatch, path, kind):
    monkeypatch.setattr(mounts, "_MACOS_COMMAND", (sys.executable, "-c", f"print({MOUNT!r}, end='')"))
    monkeypatch.setattr(os.path, "realpath", lambda path: path)
    assert mounts.network_file_system(path, "darwin") == kind


def test_without_the_command_nothing_is_known(monkeypatch):
    for command in ("/absent/mount", "/bin/false"):
        monkeypatch.setattr(mounts, "_MACOS_COMMAND", (command,))
        assert mounts.network_file_system("/Volumes/team data/catalog.db", "darwin") is None


def test_a_share_of_windows(monkeypatch):
    shares = {"Z:\\data\\catalog.db": "\\\\server\\share\\data\\catalog.db"}
    monkeypatch.setattr(os.path, "realpath", lambda path: shares.get(path, path))
    assert mounts.network_file_system("Z:\\data\\catalog.db", "win32") == "a network share"
    assert mounts.network_file_system("\\\\server\\share\\catalog.db", "win32") == "a network share"
    assert mounts.network_file_system("C:\\data\\catalog.db", "win32") is None
