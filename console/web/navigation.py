"""Entries of the navigation, in the order in which the pages show them."""

from __future__ import annotations

from typing import Final, NamedTuple


class Entry(NamedTuple):
    """A page of the navigation. `g` and then `key` on the keyboard lead to it."""

    path: str
    label: str
    key: str


NAVIGATION: Final = (
    Entry("/cluster", "Cluster", "c"),
    Entry("/topology", "Topology", "y"),
    Entry("/topics", "Topics", "t"),
    Entry("/transactions", "Transactions", "x"),
    Entry("/groups", "Groups", "g"),
    Entry("/metrics", "Metrics", "m"),
)
