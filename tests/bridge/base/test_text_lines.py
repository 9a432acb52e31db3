"""Lines of text: LF ends one, nothing else does, and what other programs take for an end is known."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from bridge.base import breaks_line, text_lines


@given(st.lists(st.text(alphabet=st.sampled_from("ab \v\x85\u2028"), max_size=5), max_size=5))
def test_lines_are_those_that_were_joined(lines: list[str]) -> None:
    assert text_lines("".join(f"{line}\n" for line in lines)) == lines
    assert text_lines("".join(f"{line}\r\n" for line in lines)) == lines


@given(st.text(max_size=5))
def test_a_text_breaks_where_python_would_split_it(text: str) -> None:
    assert breaks_line(text) == (len(f"a{text}b".splitlines()) > 1)
