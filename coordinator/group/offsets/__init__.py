"""Committed and pending offsets of groups: commit, fetch, deletion, expiration."""
