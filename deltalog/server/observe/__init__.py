"""What an operator sees of the server: the audit log, the access log, metrics and traces."""
