"""The target assignment of a consumer group, and the steps of its members towards it."""
