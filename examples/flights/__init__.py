"""A year of real flights as monthly commits, and time travel in the table and in its copies; see README.md."""
