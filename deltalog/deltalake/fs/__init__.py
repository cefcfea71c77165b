"""The names of ``deltalake.fs``."""

from deltalog.deltalake.fs.fs_handler import DeltaStorageHandler

__all__ = ["DeltaStorageHandler"]
