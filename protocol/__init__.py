"""Kafka's wire protocol: messages, record batches, compression, error codes."""
