"""The files that a log names: which store and path each one means, or a refusal.

What a log says is untrusted. A file lies in the table, or in a place that the caller allowed; each place is
reached through a store that the caller's own words opened, never through one that the log names.

Spec: PROTOCOL.md#add-file-and-remove-file (path), #deletion-vector-descriptor-schema (pathOrInlineDv).
"""

from __future__ import annotations

from collections.abc import Sequence

from deltalog.errors import UnsafePathError
from deltalog.protocol.paths import locate, place_of, sidecar_path
from deltalog.storage.base import LogStore, real_url


class TableFiles:
    """The files of the table in ``store``. ``allowed_paths`` are further places that its log may name by absolute
    paths, as a shallow clone names its source: directories, or prefixes on the same kind of store.

    Raises CallError for a place on another kind of store. Cost: none.
    """

    def __init__(self, store: LogStore, allowed_paths: Sequence[str] = ()) -> None:
        self._stores = [store, *(store.sibling(path) for path in allowed_paths)]
        self._places = [place_of(each.url) for each in self._stores]

    @property
    def allowed_paths(self) -> tuple[str, ...]:
        """The places besides the table, as their stores name them."""
        return tuple(store.url for store in self._stores[1:])

    def find(self, named: str) -> tuple[LogStore, str]:
        """The store and the path in it of a file that the log names.

        Raises UnsafePathError when it lies elsewhere, by its name or through a symbolic link. Cost: no request;
        on local disk one ``lstat`` for each directory below the place.
        """
        number, path = locate(named, self._places)
        return self._checked(self._stores[number], path, named)

    def find_sidecar(self, named: str) -> tuple[LogStore, str]:
        """As ``find``, for a sidecar, which only the table's own ``_sidecars`` may hold."""
        store = self._stores[0]
        return self._checked(store, sidecar_path(named, store.url), named)

    def location(self, named: str) -> str:
        """The path or URL under which other tools find a file that the log names. Raises UnsafePathError."""
        store, path = self.find(named)
        return store.location(path)

    def _checked(self, store: LogStore, path: str, named: str) -> tuple[LogStore, str]:
        target = store.link_target(path)
        if target is not None:
            # Links count where they lead, so the places count where they lie too.
            real = [place_of(real_url(each)) for each in self._stores]
            segments = place_of(target).segments
            if not any(segments[: len(place.segments)] == place.segments for place in real):
                raise UnsafePathError(
                    f"The log of {self._stores[0].url} names the file {named!r}, and a symbolic link on the way leads "
                    "out of the table to a place that allowed_paths does not name. Nothing was read from there.",
                    path=named,
                )
        return store, path
