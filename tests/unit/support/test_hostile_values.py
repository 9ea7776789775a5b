"""Requests with huge arrays: the quick construction equals the encoding of the objects."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from odradek.broker.dispatch.table import API_TABLE
from odradek.protocol.generation.measuring import instance
from tests.support.hostile_values import array_paths, huge
from tests.support.raw_client import encode_request

if TYPE_CHECKING:
    from odradek.broker.requests.api import AnyApi

BYTES = 2_000


@pytest.mark.parametrize("api", API_TABLE, ids=lambda api: api.name)
def test_huge_array_equals_the_encoding_of_its_objects(api: AnyApi) -> None:
    for version in range(api.min_version, api.max_version + 1):
        for path in array_paths(api.request, version):
            array = huge(api.request, version, path, BYTES)
            request = instance(api.request, version, path, array.count)
            assert array.frame == encode_request(request, version, 1, "hostile"), (version, array.path)
