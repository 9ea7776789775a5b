"""Storage of partition replicas in Kafka's file formats."""
