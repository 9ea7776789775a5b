"""Names of Kafka's APIs and error codes, as tests write them."""

from __future__ import annotations

import re
from difflib import get_close_matches
from importlib import import_module
from pkgutil import iter_modules
from typing import Any

from odradek.protocol import messages
from odradek.protocol.errors import ErrorCode
from odradek.testing.rules import ANY

ANY_API = -1
"""API key of the protocol with brokers that stands for all APIs."""
CAPITAL = re.compile(r"(?<!^)(?=[A-Z])")
CONSTANT = re.compile(r"[A-Z]+(_[A-Z]+)*")
"""Form of the constants of Kafka's Java code, such as `END_TXN`."""


def api_key(name: Any) -> int:
    """Return the key of the API with Kafka's name, such as `EndTxn`. Raise ValueError if it does not exist."""
    if name == ANY:
        return ANY_API
    if not isinstance(name, str):
        raise ValueError(f"API {name!r} is no name; use a text such as 'EndTxn'")  # noqa: TRY004  the documented error
    module = (name if CONSTANT.fullmatch(name) else CAPITAL.sub("_", name)).lower()
    known = [each.name for each in iter_modules(messages.__path__)]
    if module in known:
        request = getattr(import_module(f"{messages.__name__}.{module}"), f"{name}Request", None)
        if request is not None:
            return int(request.API_KEY)
    close = ["".join(map(str.capitalize, each.split("_"))) for each in get_close_matches(module, known, 3)]
    raise ValueError(f"API {name!r} does not exist; did you mean {', '.join(close) or 'EndTxn'}?")


def error_code(name: Any) -> int:
    """Return the error code with Kafka's name, such as `NOT_COORDINATOR`. Raise ValueError if it does not exist."""
    if not isinstance(name, str) or name == ErrorCode.NONE.name:
        raise ValueError(f"error {name!r} is no name of an error; use a text such as 'NOT_COORDINATOR'")
    try:
        return int(ErrorCode[name])
    except KeyError:
        constant = name.upper() if "_" in name or name.isupper() else CAPITAL.sub("_", name).upper()
        close = get_close_matches(constant, ErrorCode.__members__, 3)
        raise ValueError(
            f"error {name!r} does not exist; did you mean {', '.join(close) or 'NOT_COORDINATOR'}?"
        ) from None
