"""The doctor checks the log of a table against the rules of PROTOCOL.md. The doctor reports every defect together with
a remedy."""
