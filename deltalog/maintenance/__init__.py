"""Maintenance: optimize, vacuum, statistics, log files, manifests, restore."""
