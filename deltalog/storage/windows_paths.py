r"""The paths of Windows: their form in URLs and in a log, names that Windows cannot hold, and long paths. Pure.

In a log and in a store's ``url``, a path of Windows has the form of a URL's path, as Hadoop writes it:
``C:\data\events`` is ``/C:/data/events``.
"""

from __future__ import annotations

import re

_DRIVE = re.compile(r"[A-Za-z]:(?=[\\/]|\Z)")
_URL_DRIVE = re.compile(r"/+(?=[A-Za-z]:(?:/|\Z))")
_NETWORK = re.compile(r"[\\/]{2}(?![?.][\\/])")
_EXTENDED = "\\\\?\\"
# Without the prefix, most calls of Windows accept 259 characters in a path, and 247 in that of a directory.
_LONG = 240
_FORBIDDEN = re.compile(r'[<>:"|?*\\\x00-\x1f]')
# With any extension, these are devices in every directory.
_DEVICE = re.compile(r"(?:CON|PRN|AUX|NUL|CONIN\$|CONOUT\$|(?:COM|LPT)[0-9¹²³])\Z", re.IGNORECASE)


def url_of(root: str) -> str:
    r"""``C:\data`` as ``/C:/data``. A path without a drive is returned unchanged."""
    root = root.removeprefix(_EXTENDED)
    return f"/{root}".replace("\\", "/") if _DRIVE.match(root) else root


def root_of(url: str) -> str:
    """``/C:/data`` as ``C:/data``. Other paths are returned unchanged."""
    return _URL_DRIVE.sub("", url, count=1) if _URL_DRIVE.match(url) else url


def is_on_network(root: str) -> bool:
    r"""Whether a path begins with ``\\server\share``."""
    return _NETWORK.match(root) is not None


def joined(root: str, path: str, separator: str = "\\") -> str:
    r"""The path of a file below a root. A long path gets the prefix ``\\?\``, with which its length is not limited."""
    whole = root + separator + path.replace("/", separator) if path else root
    if len(whole) < _LONG or separator != "\\" or whole.startswith(_EXTENDED) or not _DRIVE.match(whole):
        return whole
    return _EXTENDED + whole.replace("/", "\\")


def refusal(path: str) -> str | None:
    """Why Windows cannot hold a file with exactly this relative path; None if it can.

    Windows drops a dot or a space at the end of a name, so two paths would be one file; a colon would name a stream of
    another file; some names are devices, whatever their extension.
    """
    for name in path.split("/"):
        if found := _FORBIDDEN.search(name):
            return f"the name {name!r} contains {found[0]!r}"
        if name.endswith((".", " ")):
            return f"the name {name!r} ends with a dot or a space, which Windows drops"
        if _DEVICE.match(name.partition(".")[0].rstrip(" ")):
            return f"the name {name!r} is that of a device"
    return None
