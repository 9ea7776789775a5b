"""Deterministic simulation: clusters of unmodified nodes in one process, on virtual time, memory networks and disks."""
