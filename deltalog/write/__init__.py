"""Writing: transactions, the actions staged on them, and rows that become data files under the rules of a table."""
