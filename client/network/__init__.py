"""Connections to a cluster: requests, retries, metadata, and requests to many brokers in parallel."""
