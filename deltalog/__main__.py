"""``python -m deltalog``: the command ``deltalog``."""

from __future__ import annotations

from deltalog.cli.main import main

if __name__ == "__main__":
    main()
