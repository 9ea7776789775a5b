"""Brokers on the controller: registrations, heartbeats, fencing."""
