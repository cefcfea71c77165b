"""Where public names live."""

#: The modules with public names, besides ``deltalog.errors``; ``deltalog`` itself exports the most frequently used
#: names.
HOMES = (
    "deltalog", "deltalog.catalog", "deltalog.engine", "deltalog.results", "deltalog.schema", "deltalog.storage",
    "deltalog.transactions",
)  # fmt: skip
