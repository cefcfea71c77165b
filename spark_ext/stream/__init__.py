"""Streams with format("deltalog"), and functions that write micro-batches."""
