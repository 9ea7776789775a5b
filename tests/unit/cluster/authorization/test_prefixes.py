"""Prefixes: the longest prefix of a name, compared with a pass over all of them."""

from hypothesis import given
from hypothesis import strategies as st

from odradek.cluster.authorization.prefixes import Prefixes

TEXT = st.text("ab", min_size=1, max_size=6)


@given(st.lists(st.tuples(st.booleans(), TEXT), max_size=40), st.lists(TEXT, max_size=10))
def test_longest_prefix_of_a_name_is_found_after_any_changes(changes: list[tuple[bool, str]], names: list[str]) -> None:
    prefixes = Prefixes()
    present: set[str] = set()
    for add, prefix in changes:
        if add and prefix not in present:
            prefixes.add(prefix)
            present.add(prefix)
        elif not add and prefix in present:
            prefixes.remove(prefix)
            present.remove(prefix)
        for name in (*names, prefix):
            expected = max((each for each in present if name.startswith(each)), key=len, default=None)
            assert prefixes.longest(name) == expected
