"""Writes tables: plans a write, casts the rows to the table's columns, runs the job that writes the files, and
commits."""
