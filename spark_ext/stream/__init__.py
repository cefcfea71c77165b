"""Streams with format("deltalog"), and writers of micro-batches."""
