"""Who calls the server: principals, and how a request proves whose it is."""
