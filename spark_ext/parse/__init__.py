"""What the text of a statement says: its tokens, the tables that it names, its queries."""
