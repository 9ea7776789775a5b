"""The log of one partition replica: append, read, flush, truncation, retention."""
