"""Reads tables: resolves versions, lists their files, and scans the files natively."""
