"""Other operating systems, as far as their differences can be produced on this one."""
