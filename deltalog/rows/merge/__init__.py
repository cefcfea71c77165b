"""MERGE: compiles the clauses, reads the source, finds the matching rows, and rewrites files."""
