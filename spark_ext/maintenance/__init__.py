"""OPTIMIZE and VACUUM on the executors of Spark."""
