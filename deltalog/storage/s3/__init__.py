"""The store for S3: one client with two transports, and its credentials, settings and connections."""
