"""Replay of metadata records into a delta of the metadata image."""
