"""Quotas of a broker: client quotas, controller mutations, and the byte budget of requests and responses."""
