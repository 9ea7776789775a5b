"""Dispatch of requests to the handlers of their APIs, with request metrics."""
