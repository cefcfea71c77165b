"""Runs in which streams with format("deltalog") fail at every step, from table to table, and what must hold after them.

``python -m tests.support.stream_failures --runs 50`` prints a line for each.
"""
