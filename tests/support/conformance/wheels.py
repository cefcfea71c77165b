"""Small wheels with an engine and its adapter, for tests that install engines without a network."""

from __future__ import annotations

import textwrap
import zipfile
from pathlib import Path

_ADAPTER = '''
    """An engine that counts commits. ``works``: whether it reads tables."""

    import importlib.util
    import sys
    from pathlib import Path

    from deltalog.conformance.engine import Engine


    class TinyEngine(Engine):
        name = "tiny"
        version = "{version}"
        works = {works}

        def rows(self, path, version=None, timestamp_ms=None):
            if path == "about":
                found = [name for name in ("pyarrow", "outside", "deltalog", "pip") if importlib.util.find_spec(name)]
                origin = importlib.util.find_spec("deltalog").origin
                return [{{"found": found, "prefix": sys.prefix, "deltalog": origin}}]
            if not self.works:
                raise OSError("libtiny.so is not there")
            return [{{"id": number}} for number in range(len(list(Path(path, "_delta_log").glob("*.json"))))]
'''


def write_wheel(directory: Path, version: str, *, works: bool = True) -> Path:
    """Write a wheel of the package ``tiny-engine``, whose adapter is ``tiny_engine:TinyEngine``."""
    directory.mkdir(parents=True, exist_ok=True)
    info = f"tiny_engine-{version}.dist-info"
    files = {
        "tiny_engine.py": textwrap.dedent(_ADAPTER).format(version=version, works=works).lstrip(),
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: tiny-engine\nVersion: {version}\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    files[f"{info}/RECORD"] = "".join(f"{name},,\n" for name in (*files, f"{info}/RECORD"))
    wheel = directory / f"tiny_engine-{version}-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for name, text in files.items():
            archive.writestr(name, text)
    return wheel
