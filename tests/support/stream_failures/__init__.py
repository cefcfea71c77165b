"""Runs in which streams from table to table with format("deltalog") fail at every step, and the checks afterwards.

``python -m tests.support.stream_failures --runs 50`` prints a line for each run.
"""
