"""``python -m deltalog.server.openapi`` prints the description."""

from __future__ import annotations

import sys

import msgspec

from deltalog.server.openapi.document import encoded

if __name__ == "__main__":
    sys.stdout.buffer.write(msgspec.json.format(encoded()) + b"\n")
