"""keys.message: message headers and sealed content as frames."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from keys import message
from keys.envelope import NO_KEY, Inner, MessageHeader, Mode
from keys.errors import BadFrame, OurFault
from tests.keys.helpers import assert_canonical, assert_strict, message_header

KEY_ID = bytes(range(16))
HEADER = message_header(KEY_ID)
U64 = st.integers(0, (1 << 64) - 1)


TRAVELS = st.sampled_from([mode for mode in Mode if mode is not Mode.AUTO])


@settings(max_examples=60)
@given(U64, U64, U64, U64, st.integers(0, 2), st.booleans(), st.booleans(), TRAVELS, st.integers(1, 9))
def test_a_header_survives_its_frame(
    sequence: int,
    previous: int,
    time_ms: int,
    deadline_ms: int,
    qos: int,
    retain: bool,
    tombstone: bool,
    mode: Mode,
    blocks: int,
) -> None:
    header = message_header(
        NO_KEY if mode is Mode.PLAIN else KEY_ID,
        sequence,
        previous=previous,
        time_ms=time_ms,
        deadline_ms=deadline_ms,
        qos=qos,
        retain=retain,
        tombstone=tombstone,
        mode=mode,
        digests=(bytes(32),) * (blocks if mode is Mode.BLOCKS else 1),
    )
    frame = header.encode()
    assert MessageHeader.decode(frame) == header
    assert frame.startswith(header.prefix())
    assert len(header.prefix()) == 68


@pytest.mark.parametrize("blocks", [1, 5])
def test_the_frame_of_a_header_is_strict(blocks: int) -> None:
    header = replace(HEADER, mode=Mode.BLOCKS, digests=(bytes(32),) * blocks)
    assert_strict(MessageHeader.decode, MessageHeader.encode, header.encode())  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "changes",
    [
        {"digests": ()},
        {"digests": (bytes(32), bytes(32))},
        {"digests": (bytes(31),)},
        {"mode": Mode.BLOCKS, "digests": (bytes(32),) * 256},
        {"mode": Mode.BLOCKS, "digests": (bytes(32), bytes(31))},
        {"mode": Mode.PLAIN},
        {"key_id": NO_KEY},
        {"key_id": bytes(15)},
        {"publisher": bytes(17)},
        {"qos": 3},
        {"sequence": -1},
        {"sequence": 1 << 64},
    ],
)
def test_headers_that_cannot_be_are_not_made(changes: dict[str, object]) -> None:
    with pytest.raises(OurFault):
        replace(HEADER, **changes).encode()  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("offset", "data"),
    [
        (2, b"\3"),  # QoS 3
        (2, b"\x10"),  # an unknown flag
        (3, b"\0"),  # no mode
        (3, b"\5"),  # an unknown mode
        (3, b"\4"),  # plain, but with a key
        (20, NO_KEY),  # sealed, but without a key
        (68, b"\0"),  # no digest
        (68, b"\2"),  # two digests of copies
    ],
)
def test_headers_that_cannot_be_are_not_read(offset: int, data: bytes) -> None:
    frame = HEADER.encode()
    with pytest.raises(BadFrame):
        MessageHeader.decode(frame[:offset] + data + frame[offset + len(data) :])


text = st.text(alphabet=st.characters(codec="utf-8"), max_size=12)
inners = st.builds(
    Inner,
    topic=st.text(alphabet="ab/é", min_size=1, max_size=9),
    time_ms=U64,
    payload=st.binary(max_size=40),
    content_type=st.none() | text,
    response_topic=st.none() | text,
    correlation_data=st.none() | st.binary(max_size=9),
    payload_format=st.sampled_from([None, 0, 1]),
    properties=st.lists(st.tuples(text, text), max_size=4).map(tuple),
)


@settings(max_examples=80)
@given(inners, st.none() | st.integers(1, 300))
def test_content_survives_its_frame_and_padding(inner: Inner, pad_to: int | None) -> None:
    frame = inner.encode(pad_to)
    assert Inner.decode(frame) == inner
    assert pad_to is None or len(frame) % pad_to == 0


FULL = Inner("plant/a/t", 5, b"21.5", "text/plain", "reply/here", b"corr", 1, (("k", "v"), ("k", "v")))


def test_the_frame_of_content_is_strict() -> None:
    assert_strict(Inner.decode, Inner.encode, FULL.encode())  # type: ignore[arg-type]
    assert_strict(Inner.decode, Inner.encode, Inner("t", 0, b"").encode())  # type: ignore[arg-type]


def test_contents_of_one_size_class_look_alike() -> None:
    sizes = {len(Inner("t", 0, bytes(size)).encode(pad_to=256)) for size in range(0, 200, 20)}
    assert sizes == {256}


def test_padding_is_zeros_only_and_asked_for() -> None:
    frame = FULL.encode(pad_to=128)
    assert Inner.decode(frame) == FULL
    for value in range(1, 256):
        with pytest.raises(BadFrame):
            Inner.decode(frame[:-1] + bytes([value]))
    with pytest.raises(BadFrame):
        Inner.decode(FULL.encode() + bytes(3))
    with pytest.raises(OurFault):
        FULL.encode(pad_to=0)


@pytest.mark.parametrize(
    "changes",
    [
        {"topic": ""},
        {"topic": "a" * 65_536},
        {"topic": "\ud800"},
        {"time_ms": -1},
        {"payload_format": 2},
        {"correlation_data": bytes(65_536)},
        {"properties": (("k", "v"),) * 1025},
    ],
)
def test_content_that_cannot_be_is_not_made(changes: dict[str, object]) -> None:
    with pytest.raises(OurFault):
        replace(FULL, **changes).encode()  # type: ignore[arg-type]


def test_content_that_cannot_be_is_not_read() -> None:
    frame = Inner("t", 0, b"p", payload_format=1).encode()
    at = 3 + 3 + 8
    assert frame[at] == 1
    with pytest.raises(BadFrame):
        Inner.decode(frame[:at] + b"\2" + frame[at + 1 :])
    with pytest.raises(BadFrame):
        Inner.decode(frame[: at + 1] + b"\xff\xff" + frame[at + 3 :])
    with pytest.raises(BadFrame):
        Inner.decode(frame[:3] + b"\0\0" + frame[6:])


@settings(max_examples=100)
@given(st.integers(0, 31), st.binary(max_size=60))
def test_arbitrary_bytes_are_refused_or_canonical(flags: int, tail: bytes) -> None:
    def encode(inner: object) -> bytes:
        assert isinstance(inner, Inner)
        return inner.encode(len(data) if flags & 16 else None)

    data = bytes([1, 5, flags]) + tail
    assert_canonical(Inner.decode, encode, data)


def test_no_repr_shows_what_is_sealed() -> None:
    assert "21.5" not in repr(FULL)
    assert "corr" not in repr(FULL).replace("correlation", "")
    assert "shown" not in repr(Inner("t", 0, b"", properties=(("shown", "shown"),)))


def test_auto_is_a_scopes_and_no_headers() -> None:
    with pytest.raises(OurFault, match="states how its content travels"):
        replace(HEADER, mode=Mode.AUTO).encode()
    frame = HEADER.encode()
    with pytest.raises(BadFrame, match="mode 5"):
        MessageHeader.decode(frame[:3] + bytes([Mode.AUTO]) + frame[4:])


def test_modes_and_flags_are_those_of_the_protocol() -> None:
    assert {mode.name: mode.value for mode in Mode} == {"COPIES": 1, "ONE": 2, "BLOCKS": 3, "PLAIN": 4, "AUTO": 5}
    assert [(each.inner_flag, each.record_flag) for each in message.SEALED] == [(1, 2), (2, 4), (4, 8), (8, 16)]


def test_content_at_its_bounds_is_made_and_read_and_beyond_them_not(monkeypatch: pytest.MonkeyPatch) -> None:
    most = replace(FULL, properties=(("k", "v"),) * 1024)
    assert Inner.decode(most.encode()) == most
    longest, longer = Inner("t", 0, b"1234"), Inner("t", 0, b"12345").encode()
    more = Inner("t", 0, b"", properties=(("", ""),) * 1024).encode()
    counted = 3 + 3 + 8
    with pytest.raises(BadFrame, match=r"^1025 user properties"):
        Inner.decode(more[:counted] + (1025).to_bytes(2) + bytes(4) + more[counted + 2 :])
    monkeypatch.setattr(message, "PAYLOAD_LIMIT", 4)
    assert Inner.decode(longest.encode()) == longest
    with pytest.raises(BadFrame):
        Inner.decode(longer)
    with pytest.raises(OurFault):
        replace(longest, payload=b"12345").encode()
