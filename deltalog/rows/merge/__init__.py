"""MERGE: the clauses, the source, the rows that match, and the files that change."""
