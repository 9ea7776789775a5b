"""Client side of a login: the requests that authenticate a new connection by a SASL mechanism (KIP-43, KIP-152)."""

from typing import Final

from odradek.protocol.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from odradek.protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from odradek.protocol.sasl.mechanism import AuthenticationFailed, SaslClient

HANDSHAKE_VERSION: Final = 1
AUTHENTICATE_VERSION: Final = 2


class Login:
    """The requests of one login. Send `request`, then the result of `received` for each response until it is None."""

    def __init__(self, client: SaslClient) -> None:
        self._client = client
        self.session_lifetime_ms = 0
        """Milliseconds from the end of the login in which the client must authenticate again (KIP-368). 0: no limit."""

    @property
    def request(self) -> SaslHandshakeRequest:
        """Return the first request, of version HANDSHAKE_VERSION."""
        return SaslHandshakeRequest(self._client.mechanism)

    def received(self, response: object) -> SaslAuthenticateRequest | None:
        """Return the request after `response`, of version AUTHENTICATE_VERSION. None: the login is complete.

        Raise AuthenticationFailed if the server refuses the client, or does not prove that it knows the credential.
        """
        if isinstance(response, SaslHandshakeResponse):
            if response.error_code:
                raise AuthenticationFailed(
                    f"the node supports the mechanisms {response.mechanisms}, not {self._client.mechanism}"
                )
            return SaslAuthenticateRequest(self._client.first())
        if not isinstance(response, SaslAuthenticateResponse):
            raise AuthenticationFailed("the node sent another response")
        if response.error_code:
            raise AuthenticationFailed(response.error_message or f"error {response.error_code}")
        message = self._client.next(bytes(response.auth_bytes))
        if message is not None:
            return SaslAuthenticateRequest(message)
        self.session_lifetime_ms = response.session_lifetime_ms
        return None
