"""OPTIMIZE: compaction, clustering, Z-order, and purging of deletion vectors."""
