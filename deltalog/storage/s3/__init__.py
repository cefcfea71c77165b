"""S3 as a store: one client over two transports, with credentials, settings and connections."""
