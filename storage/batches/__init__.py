"""Scans and checks of record batches."""
