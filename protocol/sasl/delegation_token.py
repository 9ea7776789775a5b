"""Secrets of delegation tokens (KIP-48): derived from the key of the cluster and the id of the token."""

import hmac
from base64 import b64encode

DIGEST = "sha512"


def token_hmac(key: bytes, token_id: str) -> bytes:
    """Return the HMAC of a token. `key` is that of `delegation.token.secret.key`."""
    return hmac.digest(key, token_id.encode(), DIGEST)


def token_password(secret: bytes) -> str:
    """Return the password by which a client logs in with a token. `secret` is the HMAC of the token."""
    return b64encode(secret).decode()
