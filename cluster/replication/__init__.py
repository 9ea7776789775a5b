"""Cores of partition replication: the leader's view of its followers, and the follower's truncation and fetching."""
