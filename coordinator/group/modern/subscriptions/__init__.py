"""Subscriptions of a consumer group: topic names, regular expressions, and the hash of topic metadata."""
