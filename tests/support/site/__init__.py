"""Writes the pages of the site that come from the code. Each module here writes one page or one folder of docs/."""
