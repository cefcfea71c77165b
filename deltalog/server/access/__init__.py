"""Authentication and authorization of the server's callers."""
