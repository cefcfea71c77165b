"""The write contract (docs/contracts/write.md): files are written first and then committed once, on top of a parent
version that the caller names."""
