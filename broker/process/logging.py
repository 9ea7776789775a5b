"""The program's own log: structlog to standard error, the node's id in every line."""

import logging
import sys
from typing import Any, Final

from odradek.broker.config.properties import Config

# structlog draws tracebacks with rich where it finds it, and imports all of it at once: a quarter of the time that a node
# needs to start, for something that a log file has no use for. None is how Python marks a module as not to be found.
_WITHOUT_RICH: Final = "rich" not in sys.modules
if _WITHOUT_RICH:
    sys.modules["rich"] = None  # type: ignore[assignment]  # documented, and typed too narrowly
import structlog  # noqa: E402  # the only place that comes before every other import of it

if _WITHOUT_RICH:
    del sys.modules["rich"]

_LEVELS: Final = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}


def configure(config: Config) -> None:
    """Set up structlog for this process. Standard output stays free: it carries the one line that says `ready`."""
    renderer: Any
    if config.odradek_log_format == "json":
        renderer = structlog.processors.JSONRenderer()
        exceptions: Any = structlog.processors.dict_tracebacks
    else:
        renderer = structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty())
        exceptions = structlog.processors.StackInfoRenderer()
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            exceptions,
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(_LEVELS[config.odradek_log_level]),
        logger_factory=structlog.PrintLoggerFactory(file=sys.stderr),
        cache_logger_on_first_use=True,
    )


def bind_node(node_id: int) -> None:
    """Bind the node's id for everything that starts in the current context: tasks and callbacks inherit it."""
    structlog.contextvars.bind_contextvars(node=node_id)
