"""SQL over tables by path and by name, for Spark without an extension: each statement is parsed and executed."""
