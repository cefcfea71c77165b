"""For whom a call works, where several principals share a catalog. Pure."""

from __future__ import annotations


class Caller:
    """For whom a call works: an administrator, for whom every table exists. Subclasses know other principals."""

    __slots__ = ()

    @property
    def owner(self) -> str | None:
        """The principal who owns what the call creates; None: nobody does, but the owner of the catalog."""
        return None

    def admits(self, table_id: str | None, name: str) -> bool:
        """Whether a table exists for the caller. Called when the table has been found, before any effect. ``table_id``:
        None if the catalog has no table ``name``. Raises if the caller may see the table, but not do this."""
        return table_id is not None

    @property
    def sees_all(self) -> bool:
        """Whether the caller may see every table."""
        return True

    def sees(self, table_id: str, name: str) -> bool:
        """Whether the caller may see a table."""
        return True

    def sees_schema(self, name: str) -> bool:
        """Whether the caller may see a schema."""
        return True

    def is_own(self, owner: str | None) -> bool:
        """Whether what this principal made is the caller's."""
        return True


ADMINISTRATOR = Caller()
