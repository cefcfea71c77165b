"""Writing tables: transactions, their staged actions, and data files that satisfy the table's rules."""
