"""The warnings of ``deltalake.warnings``."""


class ExperimentalWarning(Warning):
    """An experimental feature is used."""
