"""Partition replicas of a broker: leader terms, ISR changes, watermarks, parked requests, background jobs."""
