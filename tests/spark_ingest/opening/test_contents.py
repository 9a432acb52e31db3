"""Fields of many small frames as columns: each is read where it lies, and none reaches beyond its frame."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from keys.errors import BadFrame
from spark_ingest.opening.contents import Walk, pieces

TEXT = st.text(st.characters(exclude_categories=("Cs",)), max_size=5)


def walk(frames: list[bytes]) -> Walk:
    ends = np.cumsum([len(each) for each in frames])
    return Walk(b"".join(frames), ends - [len(each) for each in frames], ends)


def sized(data: bytes) -> bytes:
    return len(data).to_bytes(2, "little") + data


@given(st.lists(st.tuples(st.integers(0, 2**32 - 1), TEXT, st.booleans()), min_size=1, max_size=6))
def test_numbers_and_texts_come_in_order_also_those_that_only_some_have(rows: list[tuple[int, str, bool]]) -> None:
    found = walk([n.to_bytes(4, "little") + sized(t.encode()) + b"\7" * has for n, t, has in rows])
    assert found.number(4).tolist() == [n for n, _, _ in rows]
    assert found.text().to_pylist() == [t for _, t, _ in rows]
    some = found.some(np.array([has for _, _, has in rows]))
    assert some.number(1).tolist() == [7] * sum(has for _, _, has in rows)
    found.finish()


def test_a_frame_that_ends_too_soon_or_too_late_is_refused() -> None:
    for frames in ([b"\5\0abc", b"\1\0a"], [b"\1"]):
        with pytest.raises(BadFrame, match="too soon"):
            walk(frames).text()
    longer = walk([b"\1\0ab", b"\1\0a"])
    longer.text()
    with pytest.raises(BadFrame, match="trailing"):
        longer.finish()


def test_pieces_of_a_buffer_are_copied_out_of_it_and_gaps_left_out() -> None:
    assert pieces(b"abcdef", np.array([0, 3]), np.array([2, 6])).to_pylist() == [b"ab", b"def"]
    assert pieces(b"", np.array([], int), np.array([], int)).to_pylist() == []
