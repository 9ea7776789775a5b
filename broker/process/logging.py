"""The log of a broker process: structlog to standard error, with the node id in each line."""

import logging
import sys
from collections.abc import MutableMapping
from pathlib import Path
from typing import Any, Final, TextIO, cast

from odradek.broker.config.properties import Config
from odradek.broker.process.log_rotation import RotatingLog

# structlog imports rich, if installed, to format tracebacks. That import takes a quarter of a node's start time, and a
# log file needs no such format. With None in sys.modules, Python treats the module as not installed.
_WITHOUT_RICH: Final = "rich" not in sys.modules
if _WITHOUT_RICH:
    sys.modules["rich"] = None  # type: ignore[assignment]  # documented, and typed too narrowly
import structlog  # noqa: E402  # the only place that comes before every other import of it

if _WITHOUT_RICH:
    del sys.modules["rich"]

_LEVELS: Final = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}


def configure(config: Config, log_file: Path | None = None) -> None:
    """Configure structlog for this process. Standard output stays free for the line `ready ...`.

    `log_file` is the file to which standard error goes. It is rotated. None: the caller of the process keeps the log.
    """
    renderer: Any
    if config.odradek_log_format == "json":
        renderer = structlog.processors.JSONRenderer()
        exceptions: Any = structlog.processors.ExceptionRenderer(_without_variables())
    else:
        renderer = structlog.dev.ConsoleRenderer(
            colors=sys.stderr.isatty(), exception_formatter=structlog.dev.plain_traceback
        )
        exceptions = structlog.processors.StackInfoRenderer()
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            *([] if config.odradek_log_format == "json" else [printable_texts]),
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            exceptions,
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(_LEVELS[config.odradek_log_level]),
        logger_factory=structlog.PrintLoggerFactory(
            file=sys.stderr if log_file is None else cast("TextIO", RotatingLog(log_file, sys.stderr))
        ),
        cache_logger_on_first_use=True,
    )


def _without_variables() -> Any:
    """Return the transformer of tracebacks to JSON. Variables of a frame can be passwords, tokens or private keys."""
    return structlog.tracebacks.ExceptionDictTransformer(show_locals=False)


def printable_texts(_logger: Any, _method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Escape characters in fields that end a line or control a terminal. Clients choose names such as group ids."""
    for name, value in event.items():
        if name != "event" and isinstance(value, str) and not value.isprintable():
            event[name] = "".join(map(_printable, value))
    return event


def _printable(char: str) -> str:
    return char if char.isprintable() else char.encode("unicode_escape").decode()


def bind_node(node_id: int) -> None:
    """Add the node id to each log line of the current context. Tasks and callbacks inherit the context."""
    structlog.contextvars.bind_contextvars(node=node_id)
