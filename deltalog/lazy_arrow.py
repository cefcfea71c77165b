"""The modules of pyarrow that ``import pyarrow`` does not load, imported at their first use."""

from __future__ import annotations

from typing import TYPE_CHECKING

from deltalog.lazy_names import lazy_modules

if TYPE_CHECKING:
    import pyarrow.compute as pc
    import pyarrow.json as pj
    import pyarrow.parquet as pq
else:
    lazy_modules(__name__, pc="pyarrow.compute", pj="pyarrow.json", pq="pyarrow.parquet")

__all__ = ["pc", "pj", "pq"]
