"""Where public names live."""

#: The modules that have public names, besides ``deltalog.errors``; ``deltalog`` has those of every day.
HOMES = (
    "deltalog", "deltalog.catalog", "deltalog.engine", "deltalog.results", "deltalog.schema", "deltalog.storage",
    "deltalog.transactions",
)  # fmt: skip
