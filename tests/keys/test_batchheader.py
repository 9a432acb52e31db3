"""The header of a batch: signed once, read strictly, one meaning for each frame."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from keys.batchheader import (
    ATTRIBUTES,
    FLOOR,
    PLAIN,
    RELIABLE,
    SNAPSHOT,
    VOID,
    BatchHeader,
    NonceGuard,
    RetainedId,
    associated_of,
    check_signature,
    latest_per_topic,
    nonce,
    retained_id,
)
from keys.errors import BadFrame, BadSignature, OurFault
from keys.message import Mode
from tests.keys.helpers import PUBLISHER, STRANGER, bit_flips

VECTORS = Path(__file__).parent.parent / "vectors" / "batches.json"


def header(**changes: object) -> BatchHeader:
    fields: dict[str, object] = {
        "flags": RELIABLE,
        "member": PUBLISHER.party_id,
        "certificate": PUBLISHER.party_id[:8],
        "scope": 3,
        "generation": 1_700_000_000_000,
        "counter": 9,
        "key_id": bytes(range(16)),
        "first": 4097,
        "records": 100,
        "previous": 4096,
        "previous_ms": 1_699_999_999_999,
        "sealed_ms": 1_700_000_000_001,
        "deadline_ms": 0,
        "tree": 2,
        "mode": Mode.COPIES,
        "content_bytes": 5000,
        "digests": (bytes(32),),
    }
    return BatchHeader(**fields | changes)  # type: ignore[arg-type]


def kept(number: int, of: str = "a", tombstone: bool = False) -> RetainedId:
    return RetainedId(retained_id(None, of), number, tombstone)


EXAMPLES = {
    "usual": header(),
    "retained": header(retained=latest_per_topic([kept(4097), kept(4100, "b", True), kept(4101)])),
    "blocks": header(mode=Mode.BLOCKS, digests=(bytes(32), bytes([1]) * 32, bytes([2]) * 32)),
    "plain": header(flags=PLAIN, mode=Mode.PLAIN),
    "attributes": header(flags=RELIABLE | ATTRIBUTES, attributes=bytes([7]) * 32),
    "void": header(flags=VOID, content_bytes=0, digests=()),
    "floor": header(
        flags=FLOOR, records=1, first=9000, previous=8500, content_bytes=0, digests=(), retained=(kept(4097),)
    ),
    "snapshot": header(flags=SNAPSHOT, records=1, previous=0, previous_ms=0, first=8192, retained=(kept(4097),)),
}


FRAME = EXAMPLES["retained"].sign(PUBLISHER)


def _verified(frame: bytes) -> BatchHeader:
    check_signature(frame, PUBLISHER.public_bytes)
    return BatchHeader.decode(frame)


@pytest.mark.parametrize("name", EXAMPLES)
def test_what_is_signed_is_read_and_verified(name: str) -> None:
    frame = EXAMPLES[name].sign(PUBLISHER)
    assert BatchHeader.decode(frame) == EXAMPLES[name]
    assert associated_of(frame, EXAMPLES[name]) == EXAMPLES[name].associated()
    check_signature(frame, PUBLISHER.public_bytes)
    with pytest.raises(BadSignature):
        check_signature(frame, STRANGER.public_bytes)


@pytest.mark.parametrize("name", EXAMPLES)
def test_no_changed_bit_is_taken_for_what_was_signed(name: str) -> None:
    for changed in bit_flips(EXAMPLES[name].sign(PUBLISHER)):
        with pytest.raises((BadFrame, BadSignature)):
            _verified(changed)


@settings(max_examples=300)
@given(st.binary(max_size=400) | st.binary(max_size=200).map(lambda tail: FRAME[:112] + tail))
def test_whatever_is_read_is_written_the_same(data: bytes) -> None:
    try:
        found = BatchHeader.decode(data)
    except BadFrame:
        return
    assert associated_of(data, found) == found.associated()


@pytest.mark.parametrize(
    "changes",
    [
        {"first": 0},
        {"records": 0},
        {"records": 1025},
        {"first": 8190, "records": 3},
        {"first": 2**63 - 50},
        {"previous": 4097},
        {"previous": 0},
        {"key_id": bytes(16)},
        {"mode": Mode.PLAIN},
        {"mode": Mode.AUTO},
        {"flags": PLAIN},
        {"flags": VOID},
        {"flags": VOID | FLOOR, "content_bytes": 0, "digests": ()},
        {"flags": 64},
        {"flags": ATTRIBUTES},
        {"flags": SNAPSHOT},
        {"content_bytes": 0},
        {"digests": ()},
        {"digests": (bytes(32), bytes(32))},
        {"member": bytes(15)},
        {"retained": (kept(5000),)},
        {"retained": (kept(4097), kept(4098))},
        {"retained": tuple(reversed(latest_per_topic([kept(4097), kept(4098, "b")])))},
    ],
)
def test_what_cannot_be_is_neither_written_nor_read(changes: dict[str, object]) -> None:
    with pytest.raises(OurFault):
        header(**changes).sign(PUBLISHER)


def test_a_data_key_serves_no_number_twice_and_no_more_than_it_may() -> None:
    guard = NonceGuard(10)
    guard.use(100, 4)
    for first in (99, 100, 103):
        assert not guard.fits(first, 1)
        with pytest.raises(OurFault):
            guard.use(first, 1)
    guard.use(104, 6)
    with pytest.raises(OurFault):
        guard.use(200, 1)
    assert nonce(258) == bytes(10) + b"\1\2"


def test_names_of_retained_topics_tell_nothing_without_the_key_of_the_scope() -> None:
    assert retained_id(bytes([1]) * 32, "a") != retained_id(bytes([2]) * 32, "a")
    assert len(retained_id(None, "a")) == 16


def test_frames_are_those_of_the_vectors() -> None:
    vectors = json.loads(VECTORS.read_text())
    assert {name: each.sign(PUBLISHER).hex() for name, each in EXAMPLES.items()} == vectors["headers"]


if __name__ == "__main__":
    from tests.keys.test_records import small

    print(
        json.dumps(
            {
                "provenance": "VeilMQ protocol version 2, our own: printed by `python -m tests.keys.test_batchheader` "
                "from the fixed examples of that file and of tests/keys/test_records.py; Ed25519 as in ed25519.json",
                "headers": {name: each.sign(PUBLISHER).hex() for name, each in EXAMPLES.items()},
                "content": small().hex(),
            },
            indent=1,
        )
    )


def test_a_batch_ends_with_its_last_number_inside_its_block() -> None:
    assert (header().last, header(first=8092, records=100).last) == (4196, 8191)
    assert BatchHeader.decode(header(first=8092, records=100).sign(PUBLISHER)).last == 8191
    with pytest.raises(OurFault):
        header(first=8092, records=101).sign(PUBLISHER)
    assert not RetainedId(bytes(16), 1).tombstone


def test_flags_say_what_a_batch_is() -> None:
    assert [(header(flags=flags).is_void, header(flags=flags).is_plain) for flags in (RELIABLE, VOID, PLAIN)] == [
        (False, False),
        (True, False),
        (False, True),
    ]


def test_nothing_is_sealed_or_signed_with_a_header_that_cannot_be() -> None:
    for changes in ({"records": 0}, {"scope": 1 << 32}):
        with pytest.raises(OurFault):
            header(**changes).associated()
    with pytest.raises(OurFault):
        header(records=0).sign(PUBLISHER, header().associated())


def test_what_the_content_was_sealed_with_is_what_is_signed() -> None:
    sealed = header(counter=10).associated()
    assert header().sign(PUBLISHER, sealed) == header(counter=10).sign(PUBLISHER)


def test_every_truncation_is_refused() -> None:
    frame = header(retained=(kept(4100),)).sign(PUBLISHER)
    for size in range(len(frame)):
        with pytest.raises(BadFrame):
            BatchHeader.decode(frame[:size])
