"""The clock functions of Python on virtual time: those of `time`, and `datetime.now`.

`datetime` is a type of C. Its method is replaced in the dictionary of the type, so that subclasses, names that a module
has bound before the run, `type(value) is datetime` and pickle work unchanged.
"""

import ctypes
import gc
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

Choose = Callable[[Callable[..., Any], Callable[..., Any]], Callable[..., Any]]
"""Function that returns the first function in the thread of the run, and the second one in other threads."""


def time_functions(wall: Callable[[], float], elapsed: Callable[[], float]) -> dict[str, Callable[..., Any]]:
    """Return the functions of the module `time`, by name, on a wall clock and a monotonic clock in seconds."""
    gmtime, localtime, asctime, ctime, strftime = time.gmtime, time.localtime, time.asctime, time.ctime, time.strftime

    def gettime(clock: int) -> float:
        return wall() if clock == time.CLOCK_REALTIME else elapsed()

    return {
        "time": wall,
        "time_ns": lambda: int(wall() * 1e9),
        "clock_gettime": gettime,
        "clock_gettime_ns": lambda clock: int(gettime(clock) * 1e9),
        "gmtime": lambda seconds=None: gmtime(wall() if seconds is None else seconds),
        "localtime": lambda seconds=None: localtime(wall() if seconds is None else seconds),
        "ctime": lambda seconds=None: ctime(wall() if seconds is None else seconds),
        "asctime": lambda parts=None: asctime(localtime(wall()) if parts is None else parts),
        "strftime": lambda form, parts=None: strftime(form, localtime(wall()) if parts is None else parts),
        **{
            name: function
            for name in ("monotonic", "perf_counter", "process_time", "thread_time")
            for name, function in ((name, elapsed), (f"{name}_ns", lambda: int(elapsed() * 1e9)))
        },
    }


@contextmanager
def virtual_datetime(wall: Callable[[], float], choose: Choose) -> Iterator[None]:
    """Let `datetime.now` and `datetime.utcnow` return the time of `wall`."""
    members: dict[str, Any] = gc.get_referents(datetime.__dict__)[0]
    real = {name: members[name] for name in ("now", "utcnow")}

    def now(cls: type[datetime], tz: Any = None) -> datetime:
        return cls.fromtimestamp(wall(), tz)

    def utcnow(cls: type[datetime]) -> datetime:
        return cls.fromtimestamp(wall(), UTC).replace(tzinfo=None)

    def real_now(cls: type[datetime], tz: Any = None) -> Any:
        return real["now"].__get__(None, cls)(tz)

    def real_utcnow(cls: type[datetime]) -> Any:
        return real["utcnow"].__get__(None, cls)()

    members.update(now=classmethod(choose(now, real_now)), utcnow=classmethod(choose(utcnow, real_utcnow)))
    _forget_lookups()
    try:
        yield
    finally:
        members.update(real)
        _forget_lookups()


def _forget_lookups() -> None:
    """Clear the method cache of `datetime` and its subclasses."""
    ctypes.pythonapi.PyType_Modified(ctypes.py_object(datetime))
