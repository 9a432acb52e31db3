"""Lines of text that operators and users write, such as rules and passwords: LF ends a line, and nothing else does.

`str.splitlines` also ends a line at U+000B, U+0085, U+2028 and others. A user could then write another user's line
inside a line of its own.
"""

from __future__ import annotations

BREAKS = frozenset("\n\r\v\f\x1c\x1d\x1e\x85\u2028\u2029")
"""Characters that some program takes for the end of a line (`str.splitlines`)."""


def text_lines(text: str) -> list[str]:
    """Returns the lines of a text. A CR before the LF belongs to the end of the line."""
    lines = [line.removesuffix("\r") for line in text.split("\n")]
    return lines if lines[-1] else lines[:-1]


def breaks_line(text: str) -> bool:
    """Returns True if a program might read the text as more than a line."""
    return not BREAKS.isdisjoint(text)
