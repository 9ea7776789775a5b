"""Raft for the metadata log (KIP-595): a pure core, its driver, and snapshots (KIP-630)."""
