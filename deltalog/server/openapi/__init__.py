"""Generates the OpenAPI description of all calls of the server from its routes and message types."""
