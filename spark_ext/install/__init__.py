"""Makes programs written for delta-spark run without changes: PySpark's own readers, writers and statements reach
deltalog."""
