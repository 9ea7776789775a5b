"""Segments of a log: files, indexes, lookup, rolling."""
