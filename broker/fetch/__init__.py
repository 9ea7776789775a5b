"""Reads for Fetch: fetch sessions, byte limits, preferred read replicas. Checks of Produce requests."""
