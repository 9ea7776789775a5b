"""Colors of pictures and pages, which people with color vision deficiency can distinguish, for both color schemes.

The colors of data are from the palette of Okabe and Ito (https://jfly.uni-koeln.de/color/). Four of them are
lighter on a dark background.
"""

from __future__ import annotations

from typing import Final

INK: Final = "#1f2a33"
FAINT: Final = "#5b6875"
LINE: Final = "#d5dbe1"
PAPER: Final = "#ffffff"
BLUE: Final = "#0072b2"
ORANGE: Final = "#e69f00"
GREEN: Final = "#009e73"
VERMILION: Final = "#d55e00"
PURPLE: Final = "#cc79a7"
SKY: Final = "#56b4e9"

SERIES: Final = (BLUE, ORANGE, GREEN, PURPLE, SKY, VERMILION)
"""Colors of data, in the order in which a picture uses them. VERMILION is for faults if a picture shows faults."""
DARK: Final = {
    INK: "#e4e9ee",
    FAINT: "#9aa7b3",
    LINE: "#3a444e",
    PAPER: "#14191f",
    BLUE: "#3d8fd1",
    ORANGE: "#e69f01",
    GREEN: "#1fbd8f",
    VERMILION: "#f0793a",
    PURPLE: "#cc79a8",
    SKY: "#8fd0f5",
}
"""Color on a dark background of each color. All values differ from all keys, so that a replacement is final."""


def contrast(one: str, other: str) -> float:
    """Return the contrast ratio of two colors, from 1 to 21 (WCAG 2.2)."""
    brighter, darker = sorted((luminance(one), luminance(other)), reverse=True)
    return (brighter + 0.05) / (darker + 0.05)


def luminance(color: str) -> float:
    """Return the relative luminance of a color, from 0 to 1 (WCAG 2.2)."""
    channels = [int(color[start : start + 2], 16) / 255 for start in (1, 3, 5)]
    red, green, blue = (each / 12.92 if each <= 0.04045 else ((each + 0.055) / 1.055) ** 2.4 for each in channels)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue
