"""Compaction of logs: selection, offset map, batch filter, cleaner."""
