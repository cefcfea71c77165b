"""Measures the requests, rounds and seconds of operations on an S3 server behind a proxy that delays each request."""
