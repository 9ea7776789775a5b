"""Fault injection of the demo: broker kills, and a relay that loses responses."""
