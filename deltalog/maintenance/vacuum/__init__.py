"""VACUUM: which files below the root of a table no version needs, and their deletion."""
