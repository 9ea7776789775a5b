"""Sessions of browsers: random ids in memory with expiry, each with its principal's connections to the cluster."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import secrets
from typing import TYPE_CHECKING, Final

from odradek.client import Cluster
from odradek.console.model.cache import Cache
from odradek.console.model.observer import Observer
from odradek.console.web.streams import Streams

if TYPE_CHECKING:
    from odradek.client import Metadata
    from odradek.client.security.credentials import UserPassword
    from odradek.console.settings import Settings

ID_BYTES: Final = 32
"""Random bytes of a session id."""
ID_CHARACTERS: Final = 43
IDLE_S: Final = 30 * 60.0
"""Seconds without a request after which a session ends."""
AGE_MAX_S: Final = 12 * 3600.0
"""Seconds after the login after which a session ends."""
SESSIONS_MAX: Final = 100
"""Maximum logged-in sessions, each with up to two connections per broker.

The session idle for longest ends for a new one.
"""


class Viewer:
    """The cluster as one principal sees it: connections and a cache.

    All sessions without login share one viewer, and so do sessions with the same credentials.

    Attributes:
        credentials: Credentials of the principal. None: the cluster needs no login.
        cluster: Connections to the brokers with the credentials of the principal.
        cache: Values that requests of the same principal share.
        observer: Samples of the cluster. Without login, they begin with the console, otherwise with the first login.
        user: Name of the logged-in user. None: the cluster needs no login.
    """

    def __init__(self, settings: Settings, credentials: UserPassword | None) -> None:
        self.credentials = credentials
        self.cluster = Cluster(settings.bootstrap, settings.client_settings(credentials))
        self.cache = Cache()
        self.observer = Observer(Cluster(settings.bootstrap, settings.client_settings(credentials)))
        self.user = None if credentials is None else credentials.user

    async def all_topics(self) -> Metadata:
        """Return the metadata of all topics, at most a second old. Raise ClientError if no broker responds."""
        return await self.cache.get("all topics", lambda: self.cluster.fetch_metadata(None))

    def close(self) -> None:
        """Close the connections, and forget what was read."""
        self.cache.close()
        self.cluster.close()
        self.observer.close()


class Session:
    """A logged-in session."""

    def __init__(self, viewer: Viewer, now: float) -> None:
        self.viewer = viewer
        self.ends = now + AGE_MAX_S
        self.used = now

    def expiry(self) -> float:
        """Return the time at which the session ends without further requests."""
        return min(self.ends, self.used + IDLE_S)


class Sessions:
    """All sessions of a console.

    A browser without login has an id, too, for the tokens of forms, but nothing is kept for it.

    Attributes:
        streams: Streams of open pages. Those of a session end with it.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._sessions: dict[str, Session] = {}
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._secret = secrets.token_bytes(ID_BYTES)
        self._shared: Viewer | None = None
        self.streams = Streams()

    def start(self) -> None:
        """Start the samples of the cluster, if it needs no login. Otherwise the first login of a principal does."""
        shared = None if self._settings.needs_login else self.viewer("")
        if shared is not None:
            shared.observer.start()

    @staticmethod
    def new_id() -> str:
        """Return a random session id."""
        return secrets.token_urlsafe(ID_BYTES)

    def token(self, session_id: str) -> str:
        """Return the token that forms of this session must send back."""
        return hmac.new(self._secret, session_id.encode(), hashlib.sha256).hexdigest()

    def is_token(self, session_id: str, token: str) -> bool:
        """Return True if the token is that of the session. The time of the comparison does not depend on the texts."""
        return hmac.compare_digest(self.token(session_id).encode(), token.encode(errors="replace"))

    def viewer(self, session_id: str) -> Viewer | None:
        """Return the viewer of a session, or None if it must log in first."""
        if not self._settings.needs_login:
            self._shared = self._shared or Viewer(self._settings, None)
            return self._shared
        session = self._sessions.get(session_id)
        now = _now()
        if session is None or session.expiry() <= now:
            self.end(session_id)
            return None
        session.used = now
        return session.viewer

    async def log_in(self, credentials: UserPassword) -> str:
        """Log in to the brokers, and return the id of a new session.

        Raises:
            AuthenticationFailed: The brokers refuse the credentials.
            ClientError: No broker responds.
        """
        viewer = Viewer(self._settings, credentials)
        try:
            await viewer.cluster.fetch_metadata([])
        except BaseException:
            viewer.close()
            raise
        while len(self._sessions) >= SESSIONS_MAX:
            self.end(min(self._sessions, key=lambda each: self._sessions[each].used))
        shared = next((each.viewer for each in self._sessions.values() if each.viewer.credentials == credentials), None)
        if shared is None:
            viewer.observer.start()
        else:
            viewer.close()
            viewer = shared
        session_id = self.new_id()
        self._sessions[session_id] = Session(viewer, _now())
        self._schedule(session_id)
        return session_id

    def end(self, session_id: str) -> None:
        """End a session with its streams. Close its connections if no other session shares them.

        An unknown id has no effect.
        """
        self.streams.end_session(session_id)
        session = self._sessions.pop(session_id, None)
        if session is not None:
            self._timers.pop(session_id).cancel()
            if all(each.viewer is not session.viewer for each in self._sessions.values()):
                session.viewer.close()

    def end_all_of(self, viewer: Viewer) -> None:
        """End all sessions of a principal, whose credentials the brokers do not accept any more."""
        for session_id in [each for each, session in self._sessions.items() if session.viewer is viewer]:
            self.end(session_id)

    def close(self) -> None:
        """End all streams and sessions."""
        self.streams.stop()
        for session_id in list(self._sessions):
            self.end(session_id)
        if self._shared is not None:
            self._shared.close()
            self._shared = None

    def _schedule(self, session_id: str) -> None:
        """Close the connections of a session at its expiry, also if no further request arrives."""

        def expire() -> None:
            if self._sessions[session_id].expiry() <= _now():
                self.end(session_id)
            else:
                self._schedule(session_id)

        loop = asyncio.get_running_loop()
        self._timers[session_id] = loop.call_at(self._sessions[session_id].expiry(), expire)


def _now() -> float:
    return asyncio.get_running_loop().time()
