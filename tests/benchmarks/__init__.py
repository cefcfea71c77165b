"""Benchmarks of deltalog, deltalake and delta-spark. Run ``python -m tests.benchmarks``; see docs/benchmarks.md."""
