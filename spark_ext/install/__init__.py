"""Lets programs for delta-spark run as they are: PySpark's own readers, writers and statements reach deltalog."""
