"""The producer process of the demo, and its supervisor."""
