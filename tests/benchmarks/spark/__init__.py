"""``python -m tests.benchmarks.spark``: spark_ext beside delta-spark and Spark's plain Parquet."""
