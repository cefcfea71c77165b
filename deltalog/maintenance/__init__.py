"""Maintenance: optimize, vacuum, statistics, files of the log, manifests, restore."""
