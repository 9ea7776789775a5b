"""Common parts of all pages: sessions, checks of requests, response headers, templates."""
