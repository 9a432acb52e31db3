"""Frames of a history: one spelling, and no crash on what is none."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.contract import (
    Body,
    HistoryPage,
    HistoryPosition,
    HistoryRequest,
    before,
    encode_body,
    number_of,
    read_page,
    tag_of,
)
from keys.errors import BadFrame

NUMBERS = st.integers(0, (1 << 63) - 1)
POSITIONS = st.builds(
    HistoryPosition, NUMBERS, st.binary(min_size=16, max_size=16), NUMBERS, st.binary(min_size=8, max_size=8)
)
BODIES = st.builds(
    Body,
    st.text(st.characters(codec="utf-8"), max_size=20),
    st.binary(max_size=200),
    st.binary(max_size=40),
    st.dictionaries(st.integers(0, 255), st.binary(max_size=40), max_size=4),
)
REQUESTS = st.one_of(
    st.builds(
        HistoryRequest, NUMBERS, st.integers(0, 9), NUMBERS, NUMBERS, POSITIONS, NUMBERS, st.integers(0, 1 << 18)
    ),
    st.builds(
        lambda asked, of: HistoryRequest(asked, 1, 0, 9, publishers=tuple(of)),
        NUMBERS,
        st.lists(st.binary(min_size=16, max_size=16), min_size=1, max_size=16, unique=True),
    ),
    st.builds(lambda asked, at: HistoryRequest(asked, from_ms=at, eras=True), NUMBERS, NUMBERS),
    st.builds(lambda asked, of: HistoryRequest(asked, digest=of), NUMBERS, st.binary(min_size=32, max_size=32)),
)


@given(REQUESTS)
def test_a_request_is_read_as_it_was_written(request: HistoryRequest) -> None:
    assert HistoryRequest.decode(request.encode()) == request


@given(NUMBERS, POSITIONS, st.lists(BODIES, max_size=4), st.booleans())
def test_a_page_is_read_as_it_was_written(asked: int, upto: HistoryPosition, bodies: list[Body], is_end: bool) -> None:
    keys = ((b"header", b"shares"),)
    page = HistoryPage(asked, 1, 2, 3, upto, keys, tuple(encode_body(*body) for body in bodies), is_end)
    data = page.encode()
    found, told = read_page(data)
    assert (found.number, found.row, found.upto, found.keys, found.is_end) == (asked, 2, upto, keys, is_end)
    assert list(told) == bodies
    assert number_of(data) == asked


@pytest.mark.parametrize(
    "page",
    [
        HistoryPage(7, 1, eras=((1, bytes(32)), (2, bytes(32)))),
        HistoryPage(7, 1, document=b"of an era"),
        HistoryPage(7, 1, is_refused=True),
    ],
)
def test_other_answers_are_read_as_they_were_written(page: HistoryPage) -> None:
    assert read_page(page.encode()) == (page, ())


@given(st.binary(max_size=200))
def test_what_is_no_frame_is_refused(data: bytes) -> None:
    for read in (read_page, HistoryRequest.decode):
        for opened in (data, b"\1\x2b\0" + data, b"\1\x2c\0" + data, b"\1\x2c\2" + data):
            try:
                read(opened)
            except BadFrame:
                continue


def test_liars_frames_are_refused() -> None:
    with pytest.raises(BadFrame, match="at most"):
        HistoryRequest.decode(HistoryRequest(1, most_bytes=(1 << 18) + 1).encode())
    for publishers in ((bytes(16),) * 2, tuple(bytes([n]) * 16 for n in range(17))):
        with pytest.raises(BadFrame, match="publishers"):
            HistoryRequest.decode(HistoryRequest(1, publishers=publishers).encode())
    with pytest.raises(BadFrame, match="two things"):
        HistoryRequest.decode(b"\1\x2b\5" + bytes(100))
    with pytest.raises(BadFrame, match="not in order"):
        read_page(HistoryPage(7, 1, eras=((2, bytes(32)), (1, bytes(32)))).encode())
    twice = encode_body("t", b"h", b"", {1: b"x"})[:-6] + b"\2" + 2 * b"\1\0\0\0\1x"
    with pytest.raises(BadFrame):
        read_page(HistoryPage(7, bodies=(twice,)).encode())


def test_positions_are_in_the_order_of_time_and_tags_tell_topics_apart() -> None:
    assert before(5) < HistoryPosition(5, bytes(16), 1, bytes(8)) < before(6)
    assert tag_of("a", b"bc") != tag_of("ab", b"c")
