"""Runs in which Spark's tasks, executors and drivers fail during writes, and checks of the resulting table.

``python -m tests.support.spark_failures --runs 50`` prints a table of the runs.
"""
