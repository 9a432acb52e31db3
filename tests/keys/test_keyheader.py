"""keys.keyheader: the signed public side of a data key."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from keys.errors import BadFrame, BadShare, BadSignature, OurFault
from keys.identity import Identity
from keys.keyheader import HOPS_LIMIT, KeyHeader, Order, frame_bytes
from keys.sharetree import Hop
from tests.keys.helpers import PUBLISHER, STRANGER, assert_canonical, assert_strict, bit_flips, made, path

HEADER = made(3, 3).header


def test_the_frame_of_a_key_header_is_strict() -> None:
    assert_strict(KeyHeader.decode, KeyHeader.encode, HEADER.encode())  # type: ignore[arg-type]
    assert KeyHeader.decode(HEADER.encode()) == HEADER


@pytest.mark.long
def test_a_flipped_bit_anywhere_is_noticed() -> None:
    for changed in bit_flips(HEADER.encode()):
        with pytest.raises((BadFrame, BadSignature)):
            KeyHeader.decode(changed).verify(PUBLISHER.public_bytes)


def test_a_header_holds_for_its_publisher_only() -> None:
    HEADER.verify(PUBLISHER.public_bytes)
    with pytest.raises(BadSignature):
        HEADER.verify(STRANGER.public_bytes)
    with pytest.raises(BadSignature):
        replace(HEADER, publisher=STRANGER.party_id).verify(STRANGER.public_bytes)


def test_a_signature_from_another_domain_does_not_do() -> None:
    assert HEADER.signature == PUBLISHER.sign("veilmq/1 key", HEADER.signed_bytes)
    forged = replace(HEADER, signature=PUBLISHER.sign("veilmq/1 headers", HEADER.signed_bytes))
    with pytest.raises(BadSignature):
        forged.verify(PUBLISHER.public_bytes)


def test_the_key_id_names_everything_but_the_signature() -> None:
    assert HEADER.key_id == HEADER.digest[:16]
    assert replace(HEADER, signature=bytes(64)).key_id == HEADER.key_id
    for change in ({"epoch": 4}, {"bump": 1}, {"scope": "plant/b/#"}, {"kcv": bytes(16)}, {"message_limit": 65}):
        assert replace(HEADER, **change).key_id != HEADER.key_id


def signed(header: KeyHeader) -> KeyHeader:
    return replace(header, signature=PUBLISHER.sign("veilmq/1 key", header.signed_bytes))


@pytest.mark.parametrize(
    "changes",
    [
        {"hops": ()},
        {"hops": path(3, 3) + path(3)},
        {"hops": (Hop(1, 7, 2, 3), Hop(3, 7, 2, 3), Hop(2, 7, 2, 3))},
        {"hops": tuple(Hop(region, 7, 2, 3) for region in range(65))},
        {"hops": path(5)},
        {"message_limit": 0},
        {"scope": ""},
        {"publisher": bytes(15)},
        {"kcv": bytes(15)},
        {"commitment": bytes(31)},
        {"share_commitments": (bytes(16), bytes(16), bytes(15))},
        {"epoch": 1 << 32},
        {"bump": 1 << 16},
        {"first_sequence": -1},
        {"order": Order(-1, 0)},
        {"order": Order(0, 1 << 32)},
    ],
)
def test_headers_that_cannot_be_are_not_made(changes: dict[str, object]) -> None:
    with pytest.raises(OurFault):
        signed(replace(HEADER, **changes))  # type: ignore[arg-type]


def test_an_unsigned_header_is_not_sent() -> None:
    with pytest.raises(OurFault):
        replace(HEADER, signature=b"").encode()


@pytest.mark.parametrize(
    ("offset", "data"),
    [
        (3 + 16 + 2 + 7 + 6, b"\0"),  # no region at all
        (3 + 16 + 2 + 7 + 6 + 1 + 8, b"\0"),  # threshold 0
        (3 + 16 + 2 + 7 + 6 + 1 + 8, b"\4"),  # threshold above the number of replicas
        (3 + 16 + 2 + 7 + 6 + 1 + 10, b"\0\0\0\1"),  # region 1 twice
        (3 + 16 + 2 + 7 + 6 + 1 + 20 + 4 + 12 + 8, b"\0\0\0\0"),  # no message
        (3 + 16 + 2, b"\xff"),  # a scope that is not UTF-8
    ],
)
def test_headers_that_cannot_be_are_not_read(offset: int, data: bytes) -> None:
    frame = HEADER.encode()
    with pytest.raises(BadFrame):
        KeyHeader.decode(frame[:offset] + data + frame[offset + len(data) :])


def test_the_offsets_of_the_test_above_are_right() -> None:
    frame = HEADER.encode()
    assert frame[3 + 16 + 2 : 3 + 16 + 2 + 7] == b"plant/#"
    assert frame[34] == 2
    assert frame[35 + 20 + 24 : 35 + 20 + 28] == (64).to_bytes(4)


@settings(max_examples=60)
@given(st.integers(0, 300), st.binary(min_size=1, max_size=4))
def test_arbitrary_changes_are_refused_or_canonical(offset: int, data: bytes) -> None:
    frame = HEADER.encode()
    changed = frame[:offset] + data + frame[offset + len(data) :]
    assert_canonical(KeyHeader.decode, KeyHeader.encode, changed)  # type: ignore[arg-type]


def test_one_identity_cannot_sign_for_another() -> None:
    mallory = Identity.generate(bytes(31) + b"\7")
    forged = replace(HEADER, signature=mallory.sign("veilmq/1 key", HEADER.signed_bytes))
    for public in (PUBLISHER.public_bytes, mallory.public_bytes):
        with pytest.raises(BadSignature):
            forged.verify(public)


def test_the_views_along_a_path_are_those_that_the_key_was_split_for() -> None:
    first, second, third = path(3, 4, 5)
    header = made(3, 4, 5).header
    assert header.along([1, 3]) == (first, third)
    assert header.along([1, 2, 3]) == (first, second, third)
    assert header.along([]) == ()
    for wrong in ([4], [1, 4], [1, 2, 3, 4]):
        with pytest.raises(BadShare):
            header.along(wrong)


@pytest.mark.parametrize("counts", [(3,), (3, 5), (5, 3, 7)])
def test_the_size_of_a_frame_is_known_before_it_is_made(counts: tuple[int, ...]) -> None:
    header = made(*counts).header
    assert frame_bytes(header.scope, len(counts), counts[0]) == len(header.encode())


def test_one_region_and_the_most_regions_are_a_path() -> None:
    for count in (1, HOPS_LIMIT):
        header = signed(replace(HEADER, hops=tuple(Hop(region, 7, 2, 3) for region in range(1, count + 1))))
        assert KeyHeader.decode(header.encode()) == header


def test_regions_after_the_first_are_in_order_whatever_their_numbers_hash_to() -> None:
    order = (Hop(1, 7, 2, 3), Hop(70_000, 7, 2, 3), Hop(8, 7, 2, 3))
    with pytest.raises(OurFault, match="ascending"):
        signed(replace(HEADER, hops=order))
    assert signed(replace(HEADER, hops=(order[0], order[2], order[1]))).encode()


def test_a_key_of_one_message_is_a_key() -> None:
    header = signed(replace(HEADER, message_limit=1))
    assert KeyHeader.decode(header.encode()).message_limit == 1


def test_there_are_as_many_commitments_as_replicas_of_the_first_region() -> None:
    for counts in ((3, 5), (5, 3)):
        header = made(*counts).header
        assert len(KeyHeader.decode(header.encode()).share_commitments) == counts[0]


def test_signatures_do_not_show() -> None:
    assert repr(HEADER.signature)[2:-1] not in repr(HEADER)
