"""Lifecycle of a broker: registration, heartbeats, fencing, controlled shutdown."""
