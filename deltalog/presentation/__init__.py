"""What people are shown of a table, as text and as pages; the commands and the server use it."""
