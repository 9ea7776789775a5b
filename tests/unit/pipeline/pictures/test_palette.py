"""Contrast of the colors of pictures and pages in both color schemes, and their distance for color-blind readers."""

from __future__ import annotations

from itertools import combinations

import pytest

from odradek.pipeline.pictures.palette import DARK, FAINT, INK, LINE, PAPER, SERIES, contrast, luminance

TEXT_CONTRAST_MIN = 4.5
"""Least contrast of text (WCAG 2.2, success criterion 1.4.3)."""
DATA_CONTRAST_MIN = 2.0
"""Least contrast of data. Orange and light blue of the palette have 2.2 on white. Labels name them."""
DISTANCE_MIN = 12.0
"""Least distance of two colors in CIELAB, also without red or green cones. A distance of 2.3 is just noticeable."""
WITHOUT_RED = ((0.152286, 1.052583, -0.204868), (0.114503, 0.786281, 0.099216), (-0.003882, -0.048116, 1.051998))
WITHOUT_GREEN = ((0.367322, 0.860646, -0.227968), (0.280085, 0.672501, 0.047413), (-0.011820, 0.042940, 0.968881))
"""Matrices of Machado, Oliveira and Fernandes (2009) for linear RGB."""
FULL = ((1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.0, 0.0, 1.0))
XYZ = ((0.4124, 0.3576, 0.1805), (0.2126, 0.7152, 0.0722), (0.0193, 0.1192, 0.9505))
WHITE_POINT = (0.9505, 1.0, 1.089)
Matrix = tuple[tuple[float, ...], ...]


def product(matrix: Matrix, vector: list[float]) -> list[float]:
    return [sum(factor * value for factor, value in zip(row, vector, strict=True)) for row in matrix]


def lab(color: str, vision: Matrix) -> list[float]:
    channels = [int(color[start : start + 2], 16) / 255 for start in (1, 3, 5)]
    linear = [each / 12.92 if each <= 0.04045 else ((each + 0.055) / 1.055) ** 2.4 for each in channels]
    seen = [min(max(each, 0.0), 1.0) for each in product(vision, linear)]
    x, y, z = (
        share ** (1 / 3) if share > 0.008856 else 7.787 * share + 16 / 116
        for share in (value / white for value, white in zip(product(XYZ, seen), WHITE_POINT, strict=True))
    )
    return [116 * y - 16, 500 * (x - y), 200 * (y - z)]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_colors_are_readable_on_the_background(scheme: str) -> None:
    colors = DARK if scheme == "dark" else {color: color for color in DARK}
    for text in (INK, FAINT):
        assert contrast(colors[text], colors[PAPER]) >= TEXT_CONTRAST_MIN
    for data in SERIES:
        assert contrast(colors[data], colors[PAPER]) >= DATA_CONTRAST_MIN
    assert (luminance(colors[PAPER]) < 0.1) == (scheme == "dark")


@pytest.mark.parametrize("vision", [FULL, WITHOUT_RED, WITHOUT_GREEN], ids=["full", "without red", "without green"])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_colors_of_data_differ_for_color_blind_readers(scheme: str, vision: Matrix) -> None:
    colors = [DARK[color] if scheme == "dark" else color for color in SERIES]
    for one, other in combinations(colors, 2):
        distance = sum((a - b) ** 2 for a, b in zip(lab(one, vision), lab(other, vision), strict=True)) ** 0.5
        assert distance >= DISTANCE_MIN, (one, other)


def test_each_color_has_one_replacement_on_a_dark_background() -> None:
    assert {INK, FAINT, LINE, PAPER, *SERIES} == set(DARK)
    assert not set(DARK) & set(DARK.values())
    assert len(set(DARK.values())) == len(DARK)
