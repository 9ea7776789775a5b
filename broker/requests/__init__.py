"""Types of all request handlers: `Api` rows, contexts, listeners, connection sessions, error codes per version."""
