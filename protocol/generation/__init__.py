"""Read the JSON schemas from Kafka's jars, and render the modules of protocol.messages and protocol.records."""
