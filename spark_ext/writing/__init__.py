"""Writing: the plan of a write, rows in the columns of the table, the job that writes files, and the commit."""
