"""Where public names live."""

#: The modules that have public names, besides ``deltalog.errors``; ``deltalog`` itself has the most common names.
HOMES = (
    "deltalog", "deltalog.catalog", "deltalog.engine", "deltalog.results", "deltalog.schema", "deltalog.storage",
    "deltalog.transactions",
)  # fmt: skip
