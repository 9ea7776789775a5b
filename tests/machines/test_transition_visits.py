"""Summary of transition visits at the end of a test run."""

from tests.machines.transition_visits import lines

ROWS = [
    ("groups", "JOIN", "EMPTY", 7),
    ("groups", "JOIN", "STABLE", 0),
    ("groups", "LEAVE", "STABLE", 1200),
    ("groups", "SYNC", "STABLE", 3),
    ("transactions", "END", "ONGOING", 5),
]


def test_summary_has_a_line_per_table_with_the_least_visited_cells() -> None:
    assert lines(ROWS) == [
        "groups: 3 of 4 cells visited, 1,210 visits; least JOIN in STABLE 0, SYNC in STABLE 3, JOIN in EMPTY 7",
        "transactions: 1 of 1 cells visited, 5 visits; least END in ONGOING 5",
    ]


def test_whole_summary_has_a_line_per_event() -> None:
    assert lines(ROWS, whole=True)[1:4] == [
        "    JOIN                   EMPTY 7, STABLE 0",
        "    LEAVE                  STABLE 1200",
        "    SYNC                   STABLE 3",
    ]
