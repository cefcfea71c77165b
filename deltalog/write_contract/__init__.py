"""The write contract (docs/contracts/write.md): files are written first, and then committed once, with a named parent
version."""
