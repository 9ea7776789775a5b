"""Overlay of a dictionary: changes are applied to the base at commit."""

from __future__ import annotations

from random import Random

import pytest

from odradek.coordinator.overlay import Overlay

KEYS = "abcdefgh"


@pytest.mark.parametrize("seed", range(50))
def test_overlay_equals_a_dictionary_and_does_not_change_its_base_until_commit(seed: int) -> None:
    rng = Random(seed)
    base = {key: rng.randrange(9) for key in rng.sample(KEYS, 5)}
    before, expected, overlay = dict(base), dict(base), Overlay(base)
    for _ in range(40):
        key, value = rng.choice(KEYS), rng.randrange(9)
        if rng.random() < 0.5:
            overlay[key] = expected[key] = value
        else:
            assert overlay.pop(key, None) == expected.pop(key, None)
        assert list(overlay.items()) == list(expected.items())
        assert len(overlay) == len(expected)
        assert (key in overlay) is (key in expected)
        assert base == before
        assert list(base) == list(before)
    overlay.commit()
    assert list(base.items()) == list(expected.items())


def test_removal_of_a_missing_key_raises_key_error() -> None:
    overlay = Overlay({"a": 1})
    del overlay["a"]
    with pytest.raises(KeyError):
        del overlay["a"]
    with pytest.raises(KeyError):
        overlay["a"]
    with pytest.raises(KeyError):
        del overlay["b"]


def test_clearing_an_overlay_clears_the_base_at_commit() -> None:
    base = {"a": 1, "b": 2}
    overlay = Overlay(base)
    overlay["c"] = 3
    overlay.clear()
    assert not overlay
    assert base == {"a": 1, "b": 2}
    overlay.commit()
    assert base == {}
