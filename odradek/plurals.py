"""Numbers with nouns, for messages."""

from __future__ import annotations


def counted(count: int, noun: str) -> str:
    """Return a number with a noun in singular or plural: "1 record", "2 records"."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"
