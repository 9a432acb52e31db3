"""keys.message: message headers as frames."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from keys import message
from keys.envelope import NO_KEY, MessageHeader, Mode
from keys.errors import BadFrame, OurFault
from tests.keys.helpers import assert_strict, message_header

KEY_ID = bytes(range(16))
HEADER = message_header(KEY_ID)
U64 = st.integers(0, (1 << 64) - 1)


TRAVELS = st.sampled_from([mode for mode in Mode if mode is not Mode.AUTO])


@settings(max_examples=60)
@given(
    U64, U64, U64, U64, st.integers(0, 2), st.booleans(), st.booleans(), TRAVELS, st.integers(1, 9), st.integers(0, 255)
)
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
    tree: int,
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
        tree=tree,
    )
    frame = header.encode()
    assert MessageHeader.decode(frame) == header
    assert frame.startswith(header.prefix())
    assert len(header.prefix()) == 81


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
        (2, b"\x21"),  # a snapshot of what is not retained
        (2, b"\x25"),  # one that follows something
        (3, b"\5"),  # an unknown mode
        (3, b"\4"),  # plain, but with a key
        (20, NO_KEY),  # sealed, but without a key
        (81, b"\0"),  # no digest
        (81, b"\2"),  # two digests of copies
    ],
)
def test_headers_that_cannot_be_are_not_read(offset: int, data: bytes) -> None:
    frame = HEADER.encode()
    with pytest.raises(BadFrame):
        MessageHeader.decode(frame[:offset] + data + frame[offset + len(data) :])


def test_a_snapshot_says_in_which_life_and_under_which_key_it_was_sealed() -> None:
    header = replace(HEADER, previous=0, retain=True, snapshot=True, generation=(1 << 64) - 1, counter=(1 << 32) - 1)
    assert MessageHeader.decode(header.encode()) == header
    assert header.order == (header.sequence, (1 << 64) - 1, (1 << 32) - 1, header.time_ms)
    with pytest.raises(OurFault, match="snapshot"):
        replace(header, previous=1).encode()
    with pytest.raises(OurFault):
        replace(header, counter=1 << 32).prefix()


def test_auto_is_a_scopes_and_no_headers() -> None:
    with pytest.raises(OurFault, match="states how its content travels"):
        replace(HEADER, mode=Mode.AUTO).encode()
    frame = HEADER.encode()
    with pytest.raises(BadFrame, match="mode 5"):
        MessageHeader.decode(frame[:3] + bytes([Mode.AUTO]) + frame[4:])


def test_modes_and_flags_are_those_of_the_protocol() -> None:
    assert {mode.name: mode.value for mode in Mode} == {"COPIES": 1, "ONE": 2, "BLOCKS": 3, "PLAIN": 4, "AUTO": 5}
    assert [each.flag for each in message.SEALED] == [2, 4, 8, 16]
