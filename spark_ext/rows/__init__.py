"""DELETE, UPDATE and MERGE on the executors of Spark."""
