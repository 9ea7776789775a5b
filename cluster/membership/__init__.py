"""The failure detector: SWIM over UDP, with a TCP probe before each failure declaration."""
