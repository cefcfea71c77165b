"""The verbs that change rows: append, overwrite, delete, update and merge."""
