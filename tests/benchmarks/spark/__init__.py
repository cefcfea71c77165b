"""``python -m tests.benchmarks.spark`` compares spark_ext with delta-spark and Spark's plain Parquet."""
