"""Replication between brokers: replica fetchers on followers, fetch sessions of followers on leaders, throttles."""
