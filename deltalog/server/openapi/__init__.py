"""The OpenAPI description of everything that the server serves, generated from its routes and messages."""
