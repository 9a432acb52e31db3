"""keys.batch: headers stay what their publisher signed, where it signed them, at one verification a batch."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from keys import batch
from keys.batch import HeaderVerifier, Proof, SignedHeader, header_of, leaf, sign_batch
from keys.errors import BadFrame, BadSignature, OurFault
from tests.keys.helpers import PUBLISHER, STRANGER, assert_canonical, assert_strict, bit_flips, message_header

KEY_ID = bytes(range(16))
TOPIC = "plant/line/speed"
PUBLIC = PUBLISHER.public_bytes


def signed_batch(count: int, topic: str = TOPIC) -> list[SignedHeader]:
    headers = [message_header(KEY_ID, 1001 + index) for index in range(count)]
    proofs = sign_batch(PUBLISHER, [leaf(header.encode(), topic) for header in headers])
    return [SignedHeader(header, proof) for header, proof in zip(headers, proofs, strict=True)]


@pytest.mark.parametrize("count", range(1, 17))
def test_every_header_of_every_batch_holds_alone(count: int) -> None:
    for signed in signed_batch(count):
        HeaderVerifier().verify(SignedHeader.decode(signed.encode()), TOPIC, PUBLIC)
        assert len(signed.proof.path) <= 4
        assert 32 * len(signed.proof.path) + len(signed.proof.signature) <= 192


@pytest.mark.parametrize("count", [0, 17])
def test_batches_are_bounded(count: int) -> None:
    with pytest.raises(OurFault):
        sign_batch(PUBLISHER, [bytes(32)] * count)


def test_a_flipped_bit_anywhere_is_noticed() -> None:
    verifier = HeaderVerifier()
    frame = signed_batch(3)[1].encode()
    verifier.verify(SignedHeader.decode(frame), TOPIC, PUBLIC)
    for changed in bit_flips(frame):
        with pytest.raises((BadFrame, BadSignature)):
            verifier.verify(SignedHeader.decode(changed), TOPIC, PUBLIC)


def test_a_header_moved_to_another_topic_is_refused() -> None:
    """Otherwise a replica could use up a sequence on a topic where nobody reads it."""
    signed, verifier = signed_batch(2)[0], HeaderVerifier()
    verifier.verify(signed, TOPIC, PUBLIC)
    for topic in ("plant/line/speeds", "plant/line", "", TOPIC + "/"):
        with pytest.raises(BadSignature):
            verifier.verify(signed, topic, PUBLIC)


def test_a_header_of_another_publisher_is_refused() -> None:
    header = message_header(KEY_ID)
    (proof,) = sign_batch(STRANGER, [leaf(header.encode(), TOPIC)])
    for public in (PUBLIC, STRANGER.public_bytes):
        with pytest.raises(BadSignature):
            HeaderVerifier().verify(SignedHeader(header, proof), TOPIC, public)


def test_a_proof_of_another_leaf_is_refused() -> None:
    one, two = signed_batch(2)
    for mixed in (SignedHeader(one.header, two.proof), SignedHeader(two.header, one.proof)):
        with pytest.raises(BadSignature):
            HeaderVerifier().verify(mixed, TOPIC, PUBLIC)


def test_neither_padding_nor_inner_nodes_pass_as_headers() -> None:
    """A batch of three has a fourth leaf of zeros: no header hashes to it, nor to an inner node."""
    three = signed_batch(3)
    proof = three[2].proof
    assert proof.path[0] == bytes(32)
    header = message_header(KEY_ID, 5000)
    for forged in (Proof(3, proof.path, proof.signature), Proof(0, proof.path[1:], proof.signature)):
        with pytest.raises(BadSignature):
            HeaderVerifier().verify(SignedHeader(header, forged), TOPIC, PUBLIC)


def test_a_known_root_does_not_excuse_a_bad_signature() -> None:
    """A replica that passed such a header on would look like a liar to the next one."""
    signed, verifier = signed_batch(2)[0], HeaderVerifier()
    verifier.verify(signed, TOPIC, PUBLIC)
    spoiled = replace(signed, proof=replace(signed.proof, signature=bytes(64)))
    with pytest.raises(BadSignature):
        verifier.verify(spoiled, TOPIC, PUBLIC)


def test_one_verification_a_batch_and_a_bounded_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []

    def counted(*arguments: bytes) -> None:
        calls.append(arguments)
        original(*arguments)

    original = batch.verify
    monkeypatch.setattr(batch, "verify", counted)
    verifier = HeaderVerifier(roots_kept=2)
    first, second, third = (signed_batch(count) for count in (16, 8, 4))
    for signed in first:
        verifier.verify(signed, TOPIC, PUBLIC)
    assert len(calls) == 1
    for some in (second, third, first):
        verifier.verify(some[0], TOPIC, PUBLIC)
    assert len(calls) == 4
    verifier.verify(third[1], TOPIC, PUBLIC)
    assert len(calls) == 4


def test_refused_headers_are_not_remembered_as_good() -> None:
    signed, verifier = signed_batch(1)[0], HeaderVerifier()
    spoiled = replace(signed, proof=replace(signed.proof, signature=bytes(64)))
    for _ in range(2):
        with pytest.raises(BadSignature):
            verifier.verify(spoiled, TOPIC, PUBLIC)


@pytest.mark.parametrize("count", [1, 16])
def test_the_frame_of_a_signed_header_is_strict(count: int) -> None:
    frame = signed_batch(count)[-1].encode()
    assert_strict(SignedHeader.decode, SignedHeader.encode, frame)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "changes", [{"index": 4}, {"index": -1}, {"path": (bytes(32),) * 5}, {"path": (bytes(31),)}, {"signature": b""}]
)
def test_proofs_that_cannot_be_are_not_sent(changes: dict[str, object]) -> None:
    signed = signed_batch(4)[0]
    with pytest.raises(OurFault):
        replace(signed, proof=replace(signed.proof, **changes)).encode()  # type: ignore[arg-type]


def test_proofs_that_cannot_be_are_not_read() -> None:
    frame = signed_batch(2)[0].encode()
    at = len(frame) - 64 - 32 - 2
    assert frame[at : at + 2] == b"\0\1"
    for place in (b"\2\1", b"\0\5", b"\1\0"):
        with pytest.raises(BadFrame):
            SignedHeader.decode(frame[:at] + place + frame[at + 2 :])


@settings(max_examples=60)
@given(st.integers(0, 240), st.binary(min_size=1, max_size=4))
def test_arbitrary_changes_are_refused_or_canonical(offset: int, data: bytes) -> None:
    frame = signed_batch(2)[0].encode()
    changed = frame[:offset] + data + frame[offset + len(data) :]
    assert_canonical(SignedHeader.decode, SignedHeader.encode, changed)  # type: ignore[arg-type]


@settings(max_examples=200)
@given(st.integers(0, 2), st.booleans(), st.data())
def test_the_short_way_of_reading_a_header_is_the_long_one(qos: int, retain: bool, data: st.DataObject) -> None:
    signed = signed_batch(data.draw(st.integers(1, 16)))[0]
    frame = bytearray(SignedHeader(replace(signed.header, qos=qos, retain=retain), signed.proof).encode())
    for _ in range(data.draw(st.integers(0, 3))):
        frame[data.draw(st.integers(0, len(frame) - 1))] = data.draw(st.integers(0, 255))
    changed = bytes(frame[: data.draw(st.sampled_from([len(frame), len(frame) - 1, 100]))])
    try:
        known = SignedHeader._decode(changed)
    except BadFrame:
        with pytest.raises(BadFrame):
            SignedHeader.decode(changed)
        return
    found = SignedHeader.decode(changed)
    assert found == known
    assert found.encode() == changed
    assert found.leaf_bytes == known.header.encode()


def test_a_header_that_was_exchanged_after_decoding_makes_another_leaf() -> None:
    signed = SignedHeader.decode(signed_batch(1)[0].encode())
    forged = replace(signed, header=replace(signed.header, sequence=7))
    assert forged.leaf_bytes == forged.header.encode() != signed.leaf_bytes


@settings(max_examples=200, deadline=None)
@given(
    st.integers(1, 16), st.lists(st.tuples(st.integers(0, 15), st.binary(max_size=2), st.integers(0, 300)), max_size=12)
)
def test_what_was_seen_of_a_batch_makes_no_proof_hold_that_does_not_hold_alone(
    count: int, sent: list[tuple[int, bytes, int]]
) -> None:
    """Siblings of good proofs are remembered: a proof counts only if it is whole, as somebody else will read it."""
    frames = [signed.encode() for signed in signed_batch(count)]
    verifier = HeaderVerifier()
    for which, change, at in sent:
        frame = frames[which % count]
        frame = frame[:at] + change + frame[at + len(change) :]
        try:
            header = header_of(frame)
        except BadFrame:
            with pytest.raises(BadFrame):
                SignedHeader.decode(frame)
            continue
        assert header == SignedHeader.decode(frame).header
        try:
            HeaderVerifier().verify(SignedHeader.decode(frame), TOPIC, PUBLIC)
        except BadSignature:
            with pytest.raises(BadSignature):
                verifier.verify_frame(header, frame, TOPIC, PUBLIC)
            continue
        verifier.verify_frame(header, frame, TOPIC, PUBLIC)


def test_a_true_leaf_under_a_spoiled_path_is_refused() -> None:
    """What is above a known node is compared, not trusted: we would keep and hand on a proof that convinces nobody."""
    one, two, three = (signed.encode() for signed in signed_batch(16)[:3])
    verifier = HeaderVerifier()
    for frame in (one, two, three):
        verifier.verify_frame(header_of(frame), frame, TOPIC, PUBLIC)
    for height in range(4):
        at = len(two) - 64 - 32 * (4 - height)
        spoiled = two[:at] + bytes([two[at] ^ 1]) + two[at + 1 :]
        with pytest.raises(BadSignature):
            verifier.verify_frame(header_of(spoiled), spoiled, TOPIC, PUBLIC)


def test_a_batch_that_was_seen_costs_its_leaves_and_each_node_once(monkeypatch: pytest.MonkeyPatch) -> None:
    hashes = []
    original = batch.hashlib.sha256

    def counted(data: bytes) -> object:
        hashes.append(data)
        return original(data)

    signed = [each.encode() for each in signed_batch(16)]
    headers = [header_of(frame) for frame in signed]
    verifier = HeaderVerifier()
    monkeypatch.setattr(batch.hashlib, "sha256", counted)
    for header, frame in zip(headers, signed, strict=True):
        verifier.verify_frame(header, frame, TOPIC, PUBLIC)
    nodes = [data for data in hashes if data.startswith(b"\1") and len(data) == 65]
    assert len(hashes) <= 16 + 15
    assert len(nodes) == len(set(nodes)) <= 15
