"""Benchmarks beside deltalake and delta-spark: ``python -m tests.benchmarks``; see docs/benchmarks.md."""
