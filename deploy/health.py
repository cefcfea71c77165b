"""Checks whether the server of a configuration file is alive: ``deltalog-health /etc/deltalog/server.toml``.

Used as HEALTHCHECK in the container file; Kubernetes and systemd have their own checks. The certificate is not
verified, because it is not issued for localhost. A server that requires client certificates counts as alive if it
accepts the connection.
"""

from __future__ import annotations

import http.client
import socket
import ssl
import sys
from pathlib import Path

import tomllib

TIMEOUT_SECONDS = 4


def is_alive(file: Path) -> bool:
    settings = tomllib.loads(file.read_text(encoding="utf-8"))
    listen, tls = settings.get("listen", {}), settings.get("tls", {})
    host = listen.get("host", "127.0.0.1")
    where = ({"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host), listen.get("port", 8750))
    certificates = settings.get("certificates")
    if tls.get("client_ca_file") and (certificates is None or certificates.get("required", True)):
        socket.create_connection(where, TIMEOUT_SECONDS).close()
        return True
    connection: http.client.HTTPConnection
    if tls.get("certificate_file"):
        unverified = ssl._create_unverified_context()
        connection = http.client.HTTPSConnection(*where, timeout=TIMEOUT_SECONDS, context=unverified)
    else:
        connection = http.client.HTTPConnection(*where, timeout=TIMEOUT_SECONDS)
    connection.request("GET", "/health/live", headers={"Host": "localhost"})
    return connection.getresponse().status == 200


if __name__ == "__main__":
    try:
        sys.exit(0 if is_alive(Path(sys.argv[1])) else 1)
    except (OSError, ValueError, http.client.HTTPException) as error:
        sys.exit(f"{type(error).__name__}: {error}")
