"""The metadata image, its deltas, records and snapshots."""
