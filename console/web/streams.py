"""Streams of server-sent events that keep open pages up to date.

A feed reads the state of a page. All streams of one principal that show the same address share one feed, so the cluster
is read once for all of them. A stream has no queue: it sends the newest state when its connection accepts it.
"""

from __future__ import annotations

import asyncio
import contextlib
from enum import Enum
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Hashable

    Read = Callable[[], Awaitable[bytes]]

STREAMS_MAX: Final = 100
"""Maximum open streams per console, one per visible page. Each takes one of the connections of the server."""
PERIOD_S: Final = 5.0
"""Seconds between the readings of a page that a stream shows."""
FRESH_S: Final = 1.0
"""Seconds for which a state is new enough for a further stream. An older one is read again immediately."""


class End(Enum):
    """The reason why a stream ends."""

    GONE = "the browser has closed it"
    SESSION = "the session has ended"
    STOP = "the console stops"


class TooManyStreams(Exception):
    """The console has STREAMS_MAX streams, or it stops."""


class Stream:
    """The stream of one open page.

    Attributes:
        feed: State of the page.
        session_id: Session of the browser.
        wake: Set after each reading of the feed, and at the end.
        ended: Reason of the end, or None.
    """

    def __init__(self, feed: Feed, session_id: str) -> None:
        self.feed = feed
        self.session_id = session_id
        self.wake = asyncio.Event()
        self.ended: End | None = None

    def end(self, reason: End) -> None:
        """End the stream, unless it has ended. Its feed is not read for it any more."""
        if self.ended is None:
            self.ended = reason
            self.feed.leave(self)
            self.wake.set()


class Feed:
    """The newest state of a page. It is read while a stream shows it.

    Args:
        read: Read the state, as events.
        forget: Called when no stream shows the page any more.

    Attributes:
        state: Events that show the newest state. Empty before the first reading.
        version: Number of changes of `state`.
        readings: Number of readings, also of those that found no change.
    """

    def __init__(self, read: Read, forget: Callable[[], None]) -> None:
        self.state = b""
        self.version = 0
        self.readings = 0
        self._read = read
        self._forget = forget
        self._streams: set[Stream] = set()
        self._wanted = asyncio.Event()
        self._read_at: float | None = None
        self._task: asyncio.Task[None] | None = None

    def join(self, stream: Stream) -> None:
        """Notify a stream of readings. Read the state immediately if it is not new."""
        self._streams.add(stream)
        loop = asyncio.get_running_loop()
        if self._task is None:
            self._task = loop.create_task(self._run())
        elif self._read_at is not None and loop.time() - self._read_at >= FRESH_S:
            self._wanted.set()

    def leave(self, stream: Stream) -> None:
        """Do not notify a stream any more. Without streams, the readings end."""
        self._streams.discard(stream)
        if not self._streams and self._task is not None:
            self._task.cancel()
            self._forget()

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        try:
            while True:
                self._wanted.clear()
                state = await self._read()
                self._read_at = loop.time()
                self.readings += 1
                if state != self.state:
                    self.state = state
                    self.version += 1
                for stream in self._streams:
                    stream.wake.set()
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(PERIOD_S):
                        await self._wanted.wait()
        finally:
            # After an unexpected error, browsers connect again, to a new feed.
            for stream in list(self._streams):
                stream.end(End.GONE)


class Streams:
    """All open streams of a console."""

    def __init__(self) -> None:
        self._open: set[Stream] = set()
        self._feeds: dict[Hashable, Feed] = {}
        self._stopped = False

    def __len__(self) -> int:
        return len(self._open)

    def open(self, key: Hashable, session_id: str, read: Read) -> Stream:
        """Open a stream. `read` reads the state of `key`, if no other stream does.

        The caller must close it. Raise TooManyStreams if the console has STREAMS_MAX streams, or stops.
        """
        if self._stopped or len(self._open) >= STREAMS_MAX:
            raise TooManyStreams
        feed = self._feeds.get(key)
        if feed is None:
            feed = self._feeds[key] = Feed(read, lambda: self._forget(key))
        stream = Stream(feed, session_id)
        self._open.add(stream)
        feed.join(stream)
        return stream

    def close(self, stream: Stream) -> None:
        """Forget a stream whose response is complete or lost."""
        self._open.discard(stream)
        stream.end(End.GONE)

    def end_session(self, session_id: str) -> None:
        """End the streams of a session."""
        for stream in [each for each in self._open if each.session_id == session_id]:
            stream.end(End.SESSION)

    def stop(self) -> None:
        """End all streams, and refuse new ones."""
        self._stopped = True
        for stream in list(self._open):
            stream.end(End.STOP)

    def _forget(self, key: Hashable) -> None:
        self._feeds.pop(key, None)
