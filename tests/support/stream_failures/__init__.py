"""Runs in which streams from table to table with format("deltalog") fail at each step, and the checks after each run.

``python -m tests.support.stream_failures --runs 50`` prints a line for each run.
"""
