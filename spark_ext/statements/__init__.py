"""SQL statements on tables given by path or name, for Spark without an extension: they are parsed and executed here."""
