"""Pages of long lists."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Paging:
    """A page of a list. `page` begins at 1 and is within the list."""

    page: int
    pages: int
    total: int
    first: int
    last: int


def paging_of(total: int, page: int, per_page: int) -> Paging:
    """Return the page of a list that is closest to the requested one."""
    pages = max(1, math.ceil(total / per_page))
    page = max(1, min(page, pages))
    first = (page - 1) * per_page
    return Paging(page, pages, total, first, min(total, first + per_page))
