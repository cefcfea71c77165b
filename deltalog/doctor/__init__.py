"""The doctor: examines the log of a table against the rules of PROTOCOL.md, and names each defect with its remedy."""
