"""The controller: it decides on brokers, topics, partitions, leaders and configurations."""
