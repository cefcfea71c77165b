"""Creates tables from a schema, from a version of another table (clone), and from a directory of Parquet files."""
