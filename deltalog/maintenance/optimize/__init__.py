"""OPTIMIZE: compaction, clustering, Z-order, and the purge of deletion vectors."""
