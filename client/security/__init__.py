"""Encryption of connections by TLS, and authentication by SASL."""
