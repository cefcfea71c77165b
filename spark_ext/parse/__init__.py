"""Parses the text of a statement: its tokens, the tables that it names, its queries."""
