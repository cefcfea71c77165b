"""The callers of a catalog that several principals share, and which tables exist for them. Pure."""

from __future__ import annotations


class Caller:
    """The caller of a call. This class stands for an administrator, who may see everything; subclasses stand for other
    principals.
    """

    __slots__ = ()

    @property
    def owner(self) -> str | None:
        """The principal who owns the objects that the call creates; None: only the owner of the catalog does."""
        return None

    def admits(self, table_id: str | None, name: str) -> bool:
        """Whether a table exists for the caller. Called when the table has been looked up, before the call has any
        effect. ``table_id``: None if the catalog has no table ``name``. Raises an error if the caller may see the table
        but is not permitted to make this call on it.
        """
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
        """Whether the caller may use what the principal ``owner`` created."""
        return True


ADMINISTRATOR = Caller()
