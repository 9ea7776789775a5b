"""Configuration of a broker: properties, topic and group overrides, sources, validation."""
