"""Cores of the transaction coordinator and the group coordinator, independent of network and disk."""
