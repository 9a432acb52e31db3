"""Content read in columns is what `Inner.decode` reads one by one, also where frames are broken."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from keys.errors import BadFrame, KeysError
from keys.message import SEALED_PROPERTIES, Inner
from spark_ingest.opening.inners import Inners, read_inners

NONE = (None,) * len(SEALED_PROPERTIES)
_TEXTS = st.text(st.characters(exclude_categories=("Cs",)), max_size=6)
INNERS = st.builds(
    Inner,
    topic=_TEXTS.filter(bool),
    time_ms=st.integers(0, 2**64 - 1),
    payload=st.binary(max_size=20),
    content_type=st.none() | _TEXTS,
    response_topic=st.none() | _TEXTS,
    correlation_data=st.none() | st.binary(max_size=5),
    payload_format=st.sampled_from((None, 0, 1)),
    properties=st.lists(st.tuples(_TEXTS, _TEXTS), max_size=4).map(tuple),
)
FRAMES = st.builds(lambda inner, pad: inner.encode(pad), INNERS, st.none() | st.integers(1, 40))


@st.composite
def broken(draw: Any) -> bytes:
    """A frame with one byte changed, or cut, or with more behind it."""
    frame = draw(FRAMES)
    at = draw(st.integers(0, len(frame) - 1))
    kind = draw(st.sampled_from(("change", "cut", "add")))
    if kind == "cut":
        return frame[:at]
    if kind == "add":
        return frame + draw(st.binary(min_size=1, max_size=3))
    return frame[:at] + bytes([frame[at] ^ draw(st.integers(1, 255))]) + frame[at + 1 :]


def listed(found: Inners) -> list[tuple[Any, ...]]:
    pairs = [tuple((pair["name"], pair["value"]) for pair in row) for row in found.properties.to_pylist()]
    sealed = [found.sealed[name].to_pylist() for name in SEALED_PROPERTIES]
    columns = (found.topic.to_pylist(), found.time_ms.tolist(), found.payload.to_pylist(), pairs, *sealed)
    return list(zip(*columns, strict=True))


@settings(max_examples=200, deadline=None)
@given(st.lists(FRAMES | broken(), max_size=6))
def test_columns_are_what_frames_say_one_by_one(frames: list[bytes]) -> None:
    expected, errors = [], {}
    for number, frame in enumerate(frames):
        try:
            inner = Inner.decode(frame)
        except KeysError as error:
            errors[number] = str(error)
        else:
            sealed = (getattr(inner, name) for name in SEALED_PROPERTIES)
            expected.append((inner.topic, inner.time_ms, inner.payload, inner.properties, *sealed))
    found, bad = read_inners(frames)
    assert listed(found) == expected
    assert {number: str(error) for number, error in bad.items()} == errors


@settings(max_examples=50, deadline=None)
@given(st.lists(INNERS, min_size=1, max_size=5))
def test_well_formed_frames_never_take_the_slow_way(inners: list[Inner]) -> None:
    from spark_ingest.opening.inners import _columns

    assert len(_columns([inner.encode() for inner in inners]).topic) == len(inners)


def test_rows_are_taken_by_number() -> None:
    found, _ = read_inners([Inner(f"t{n}", n, b"%d" % n, properties=(("k", str(n)),)).encode() for n in range(4)])
    assert listed(found.take([1, 3])) == [
        ("t1", 1, b"1", (("k", "1"),), *NONE), ("t3", 3, b"3", (("k", "3"),), *NONE)
    ]  # fmt: skip
    assert [(inner.topic, inner.time_ms, inner.payload) for inner in found.rows()][2] == ("t2", 2, b"2")


def test_an_empty_batch_has_columns() -> None:
    found, bad = read_inners([])
    assert (listed(found), bad) == ([], {})


def test_a_length_that_points_into_the_next_frame_is_no_content() -> None:
    """The frames lie in one buffer: none may be read as part of another."""
    frame = Inner("a", 1, b"xy").encode()
    longer = frame[:-6] + (6).to_bytes(4) + frame[-2:]
    found, bad = read_inners([longer, frame])
    assert isinstance(bad[0], BadFrame)
    assert listed(found) == [("a", 1, b"xy", (), *NONE)]


@pytest.mark.parametrize("count", [1024, 1025])
def test_user_properties_are_bounded(count: int) -> None:
    frame = Inner("a", 1, b"", properties=(("", ""),) * 1024).encode()
    at = frame.index((1024).to_bytes(2))
    frame = frame[:at] + count.to_bytes(2) + frame[at + 2 :]
    _, bad = read_inners([frame])
    assert bool(bad) is (count > 1024)
