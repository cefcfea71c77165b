"""The write contract (docs/contracts/write.md): files first, then one commit with a named parent."""
