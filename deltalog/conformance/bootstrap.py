"""Starts the line server of an adapter. Run by path, by the Python of an engine's environment.

deltalog is not installed in that environment. This file imports the package ``deltalog`` in whose folder it is, without
adding the folder to the path, which would make other packages of the kit's environment importable.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import sys
from pathlib import Path

_PACKAGE = Path(__file__).resolve().parents[1]
_OLDEST = (3, 10)


def find_package() -> None:
    """Import deltalog from the folder of this file."""
    spec = importlib.util.spec_from_file_location(
        "deltalog", _PACKAGE / "__init__.py", submodule_search_locations=[str(_PACKAGE)]
    )
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["deltalog"] = module
    spec.loader.exec_module(module)


def main() -> None:
    if sys.version_info < _OLDEST:
        needed, found = (".".join(map(str, each)) for each in (_OLDEST, sys.version_info[:2]))
        print(json.dumps({"protocol": 1, "error": f"adapters need Python {needed} or newer, and this is {found}"}))
        return
    # Python puts the folder of a program first on the path; the modules of this one are not top-level modules.
    sys.path[:] = [each for each in sys.path if not each or Path(each).resolve() != Path(__file__).resolve().parent]
    find_package()
    importlib.import_module("deltalog.conformance.line_server").main(sys.argv[1:])


if __name__ == "__main__":
    main()
