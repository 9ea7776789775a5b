"""Consumer groups of KIP-848: heartbeats, subscriptions, target assignment, conversion from and to classic groups."""
