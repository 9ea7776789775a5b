"""Reads the JSON schemas out of Kafka's jars and renders the classes of protocol.messages and protocol.records."""
