"""Partitions on the controller: topic creation, replica placement, ISR changes, reassignments."""
