"""Producer state of one partition, and its snapshots."""
