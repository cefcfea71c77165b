"""The entry point of the command ``deltalog``.

``--version`` does not import typer and rich, which are slow to import. typer and rich belong to the extra ``cli``; if
they are missing, the command prints one line to standard error.
"""

from __future__ import annotations

import contextlib
import sys
from importlib.util import find_spec

from deltalog.version import VERSION


def main() -> None:
    if sys.argv[1:] == ["--version"]:
        sys.stdout.write(f"deltalog {VERSION}\n")
        return
    missing = [name for name in ("typer", "rich") if find_spec(name) is None]
    if missing:
        needed = " and ".join(missing)
        sys.exit(f"The command line needs {needed}, which is not installed: pip install 'deltalog[cli]'")
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(AttributeError, OSError):
            stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
    from deltalog.cli.commands import app

    # Shells ask for completions without arguments, so that completion sees all commands.
    app.with_only(*sys.argv[1:2])()


if __name__ == "__main__":
    main()
