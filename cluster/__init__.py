"""Cores of the cluster: metadata, Raft, controller, failure detector, replication, broker lifecycle."""
