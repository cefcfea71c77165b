"""The Spark session: its settings and defaults, jobs, storage options, paths, and names of tables."""
