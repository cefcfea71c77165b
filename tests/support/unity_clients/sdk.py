"""Unity Catalog's Python SDK. It pins older aiohttp and pydantic than other packages of the tests install, so it is not
one of their requirements: pip fetches its wheel once, without what it requires, into a cache directory."""

from __future__ import annotations

import asyncio
import fcntl
import importlib
import subprocess
import sys
import tempfile
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

SDK_VERSION = "0.7.0"
_WHEELS = (f"unitycatalog-client=={SDK_VERSION}", "aiohttp-retry==2.9.1")


def sdk() -> Any:
    """The module ``unitycatalog.client``."""
    where = str(_directory())
    if where not in sys.path:
        sys.path.append(where)
    return importlib.import_module("unitycatalog.client")


def _directory() -> Path:
    target = Path.home() / ".cache" / "deltalog" / "python" / f"unitycatalog-client-{SDK_VERSION}"
    if not target.is_dir():
        target.parent.mkdir(parents=True, exist_ok=True)
        with target.with_name(target.name + ".lock").open("w") as handle:
            fcntl.flock(handle, fcntl.LOCK_EX)
            if not target.is_dir():
                _fetch(target)
    return target


def _fetch(target: Path) -> None:
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=f".{target.name}.") as scratch:
        out = Path(scratch) / "packages"
        pip = (sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check")
        done = subprocess.run(
            [*pip, "--no-deps", "--target", str(out), *_WHEELS], check=False, capture_output=True, text=True
        )
        if done.returncode != 0:
            raise RuntimeError(f"pip could not fetch Unity Catalog's Python SDK: {done.stderr.strip()[-1500:]}")
        out.rename(target)


class Sdk:
    """Calls of the SDK, one at a time. ``client``: its module, with the API classes and models. The SDK has no setting
    for a token, so its users set the header themselves."""

    def __init__(self, url: str, token: str | None = None) -> None:
        self.client = sdk()
        self._host = f"{url}/api/2.1/unity-catalog"
        self._header = () if token is None else ("Authorization", f"Bearer {token}")

    def call(self, api: str, request: Callable[[Any], Coroutine[Any, Any, Any]]) -> Any:
        """The answer to ``request``, which is called with an object of the API class ``api``."""

        async def run() -> Any:
            async with self.client.ApiClient(self.client.Configuration(self._host), *self._header) as connection:
                return await request(getattr(self.client, api)(connection))

        return asyncio.run(run())
