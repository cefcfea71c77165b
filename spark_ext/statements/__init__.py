"""SQL statements on tables given by path or by name, for Spark without an extension: this package parses and executes
them."""
