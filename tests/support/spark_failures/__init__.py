"""Runs in which Spark's tasks, executors and drivers fail while they write, and the judge of what is left.

``python -m tests.support.spark_failures --runs 50`` prints a table of them.
"""
