"""Topics as a broker sees them: metadata for clients, and automatic creation."""
