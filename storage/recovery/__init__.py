"""Opening of a log, and recovery after an unclean shutdown."""
