"""Benchmarks of deltalog, deltalake and delta-spark: ``python -m tests.benchmarks``; see docs/benchmarks.md."""
