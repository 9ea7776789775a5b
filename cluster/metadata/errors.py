"""Errors of reading the metadata log. After one of them the node must stop."""


class InconsistentMetadata(Exception):
    """A record of the metadata log contradicts the records before it: the log is corrupt, or a bug has written it."""


class UnsupportedMetadata(Exception):
    """This version of the broker does not support the type, version or frame of a metadata record."""
