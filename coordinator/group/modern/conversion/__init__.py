"""Conversion between classic groups and consumer groups (KIP-848)."""
