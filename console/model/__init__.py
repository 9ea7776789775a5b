"""Models of the pages: frozen dataclasses, and the functions that read them from a cluster. No HTML."""
