"""Creates tables: from a schema, as a clone of a version, from a directory of Parquet files."""
