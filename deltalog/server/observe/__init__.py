"""The audit log, the access log, the metrics and the traces of the server."""
