"""The doctor checks the log of a table against the rules of PROTOCOL.md. It reports every defect with a remedy."""
