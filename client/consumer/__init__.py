"""A consumer without a group: it reads and decodes records of assigned partitions."""
