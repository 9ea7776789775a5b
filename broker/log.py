"""The program's own log: structlog to standard error, the node's id in every line."""

import logging
import sys
from typing import Any, Final

import structlog

from broker.config import Config

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
