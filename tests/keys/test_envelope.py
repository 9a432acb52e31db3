"""keys.envelope: one data key from making to opening, and the attacks on it."""

from __future__ import annotations

import copy
import pickle
from dataclasses import replace

import pytest
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from hypothesis import given, settings
from hypothesis import strategies as st

from keys import envelope
from keys.derivation import Derivation
from keys.envelope import DataKey, check_epoch_key, check_share, make_key, open_key
from keys.epochs import KeyName
from keys.errors import BadContent, OurFault, WrongEpochKey
from keys.sharetree import first_split
from tests.keys.helpers import PUBLISHER, SCOPE_KEY, made, message_header, path, stream

MADE = made(3)
TOPIC = "plant/line/speed"
PREFIX = message_header(MADE.header.key_id).prefix()
SEALED = MADE.key.seal(PREFIX, 1001, TOPIC, b"21.5 m/s")


def reader() -> DataKey:
    return open_key(MADE.header, MADE.secret, SCOPE_KEY)


def test_what_the_publisher_seals_a_reader_opens() -> None:
    assert reader().open(PREFIX, 1001, TOPIC, SEALED) == b"21.5 m/s"
    assert MADE.key.open(PREFIX, 1001, TOPIC, SEALED) == b"21.5 m/s"
    assert len(SEALED) == len(b"21.5 m/s") + envelope.TAG_BYTES


def test_a_scope_without_an_epoch_key_works_by_shares_alone() -> None:
    header, key, _ = make_key(PUBLISHER, KeyName("open/#", 0, 0), path(3), 0, 64, None, stream("shares only"))
    secret = stream("shares only")(32)
    prefix = message_header(header.key_id, 5).prefix()
    assert open_key(header, secret, None).open(prefix, 5, "t", key.seal(prefix, 5, "t", b"x")) == b"x"


def test_content_opens_only_where_it_was_sealed() -> None:
    """Changed content, header or topic, and content under another sequence, do not open."""
    key = reader()
    other = message_header(MADE.header.key_id, 1001, retain=True).prefix()
    next_prefix = message_header(MADE.header.key_id, 1002).prefix()
    flipped = bytes([SEALED[0] ^ 1]) + SEALED[1:]
    for prefix, sequence, topic, sealed in (
        (PREFIX, 1001, TOPIC, flipped),
        (PREFIX, 1001, TOPIC, SEALED[:-1]),
        (PREFIX, 1001, TOPIC, SEALED[:15]),
        (PREFIX, 1001, TOPIC, b""),
        (PREFIX, 1001, TOPIC + "s", SEALED),
        (other, 1001, TOPIC, SEALED),
        (next_prefix, 1002, TOPIC, SEALED),
    ):
        with pytest.raises(BadContent):
            key.open(prefix, sequence, topic, sealed)


@settings(max_examples=50)
@given(st.lists(st.sampled_from(["good", "altered", "short", "elsewhere", "empty"]), max_size=20))
def test_many_open_as_one_by_one_and_a_bad_one_spoils_no_other(kinds: list[str]) -> None:
    header, sealer, _ = make_key(PUBLISHER, KeyName("s", 0, 0), path(3), 0, 64, SCOPE_KEY, stream("many"))
    nonces, sealed, associated = [], [], []
    expected: list[bytes | None] = []
    for sequence, kind in enumerate(kinds, 1):
        prefix = message_header(header.key_id, sequence).prefix()
        content = sealer.seal(prefix, sequence, TOPIC, b"content %d" % sequence)
        content = {"altered": content[:-1] + bytes([content[-1] ^ 1]), "short": content[:9], "empty": b""}.get(
            kind, content
        )
        topic = "elsewhere" if kind == "elsewhere" else TOPIC
        nonces.append(sequence.to_bytes(envelope.NONCE_BYTES))
        associated.append(bytes([1]) + prefix + len(topic).to_bytes(2) + topic.encode())
        sealed.append(content)
        try:
            expected.append(sealer.open(prefix, sequence, topic, content))
        except BadContent:
            expected.append(None)
    assert DataKey.open_each([sealer] * len(kinds), nonces, sealed, associated) == expected
    assert [each is not None for each in expected] == [kind == "good" for kind in kinds]


@pytest.mark.attack(13)
def test_a_nonce_never_serves_twice_nor_a_key_beyond_its_limit() -> None:
    header, key, _ = make_key(PUBLISHER, KeyName("s", 0, 0), path(3), 0, 2, SCOPE_KEY, stream("limit"))

    def seal(sequence: int) -> bytes:
        return key.seal(message_header(header.key_id, sequence).prefix(), sequence, TOPIC, b"x")

    seal(7)
    with pytest.raises(OurFault, match="another data key"):
        seal(7)
    seal(8)
    with pytest.raises(OurFault, match="another data key"):
        seal(9)


def test_a_reader_cannot_seal_in_the_name_of_the_publisher() -> None:
    with pytest.raises(OurFault, match="made"):
        reader().seal(message_header(MADE.header.key_id, 1002).prefix(), 1002, TOPIC, b"x")


def test_prefix_and_sequence_and_key_belong_together() -> None:
    for prefix, sequence in (
        (PREFIX, 1002),
        (PREFIX[:-1], 1001),
        (message_header(bytes(15) + b"\1", 1003).prefix(), 1003),
    ):
        with pytest.raises(OurFault):
            MADE.key.seal(prefix, sequence, TOPIC, b"x")
    prefix = message_header(MADE.header.key_id, 1004).prefix()
    for other in (prefix[:-1], prefix + b"\0"):
        with pytest.raises(OurFault, match="not that of a message header"):
            MADE.key.seal(other, 1004, TOPIC, b"x")


def test_the_wrong_epoch_key_is_no_fault_of_the_shares() -> None:
    header = MADE.header
    shares_only, _, _ = make_key(PUBLISHER, KeyName("s", 0, 0), path(3), 0, 64, None, stream("none"))
    for wrong_header, key in ((header, bytes(range(32))), (header, None), (shares_only, SCOPE_KEY)):
        with pytest.raises(WrongEpochKey):
            open_key(wrong_header, MADE.secret, key)
        with pytest.raises(WrongEpochKey):
            check_epoch_key(wrong_header, key)
    check_epoch_key(header, SCOPE_KEY)


def test_an_epoch_key_of_zeros_or_another_size_is_refused() -> None:
    """Zeros as a salt are what a scope without a key uses: such a key would add nothing."""
    for key in (bytes(32), bytes(31) + b"\1" + b"\1", b""):
        with pytest.raises(OurFault):
            make_key(PUBLISHER, KeyName("s", 0, 0), path(3), 0, 64, key, stream("zeros"))
        with pytest.raises(OurFault):
            open_key(MADE.header, MADE.secret, key)


def test_another_secret_does_not_fit_the_commitment() -> None:
    for secret in (bytes(32), MADE.secret[:-1] + bytes([MADE.secret[-1] ^ 1]), MADE.secret + b"\0"):
        with pytest.raises(BadContent):
            open_key(MADE.header, secret, SCOPE_KEY)


def test_quorum_without_epoch_key_and_reader_without_secret_get_nothing() -> None:
    """The encryption key depends on both: no other combination of what one of them has gives it."""
    enc, _ = Derivation(SCOPE_KEY).derive(MADE.secret, MADE.header.binding)
    for secret, key in ((MADE.secret, None), (bytes(32), SCOPE_KEY), (SCOPE_KEY, None), (SCOPE_KEY, MADE.secret)):
        assert Derivation(key).derive(secret, MADE.header.binding)[0] != enc


def test_keys_depend_on_the_whole_header() -> None:
    changes: tuple[dict[str, object], ...] = (
        {"epoch": 4},
        {"bump": 1},
        {"scope": "other/#"},
        {"hops": path(3, 3)},
        {"first_sequence": 1},
        {"message_limit": 65},
        {"publisher": bytes(16)},
    )
    for change in changes:
        moved = replace(MADE.header, **change)  # type: ignore[arg-type]
        with pytest.raises(BadContent):
            open_key(moved, MADE.secret, SCOPE_KEY)
        assert not check_share(moved, 1, MADE.shares[0].value)


# --------------------------------------------------------------------------------------------- shares


def test_a_share_is_checked_against_its_commitment() -> None:
    first, second, third = MADE.shares
    assert check_share(MADE.header, 1, first.value)
    assert check_share(MADE.header, 3, third.value)
    assert check_share(MADE.header, 2, second.value)
    for place, value in ((1, second.value), (2, first.value), (0, first.value), (4, first.value), (1, bytes(32))):
        assert not check_share(MADE.header, place, value)


def test_a_header_commits_to_one_secret_per_share_set() -> None:
    other = first_split(bytes(32), MADE.hops[0], bytes(32))
    assert not any(check_share(MADE.header, share.label[0].place, share.value) for share in other)


# ------------------------------------------------------------------- one ciphertext under two keys


def gf128_mul(x: int, y: int) -> int:
    """Multiplication as GHASH does it (NIST SP 800-38D, §6.3)."""
    product, v = 0, y
    for bit in range(127, -1, -1):
        if x >> bit & 1:
            product ^= v
        v = v >> 1 ^ (0xE1 << 120 if v & 1 else 0)
    return product


def gf128_inverse(x: int) -> int:
    """x^(2^128 - 2)."""
    result, power = 1 << 127, x
    for _ in range(127):
        power = gf128_mul(power, power)
        result = gf128_mul(result, power)
    return result


def aes_block(key: bytes, block: bytes) -> int:
    encryptor = Cipher(algorithms.AES(key), modes.ECB()).encryptor()
    return int.from_bytes(encryptor.update(block))


def ciphertext_under_two_keys(keys: tuple[bytes, bytes], nonce: bytes, associated: bytes) -> bytes:
    """One block and tag that both keys accept: the tags' difference is linear in the block, so solve for it."""
    padded = associated + bytes(-len(associated) % 16)
    blocks = [int.from_bytes(padded[at : at + 16]) for at in range(0, len(padded), 16)]
    lengths = (8 * len(associated)) << 64 | 128
    constants, factors = [], []
    for key in keys:
        h = aes_block(key, bytes(16))
        total = 0
        for block in (*blocks, 0, lengths):
            total = gf128_mul(total ^ block, h)
        constants.append(total ^ aes_block(key, nonce + b"\0\0\0\1"))
        factors.append(gf128_mul(h, h))
    difference = gf128_inverse(factors[0] ^ factors[1])
    block = gf128_mul(constants[0] ^ constants[1], difference)
    tag = constants[0] ^ gf128_mul(block, factors[0])
    return block.to_bytes(16) + tag.to_bytes(16)


def test_one_ciphertext_under_two_keys_is_stopped_by_the_commitment() -> None:
    """A bad publisher could show two readers two contents. AES-GCM lets it; the key header does not."""
    header = MADE.header
    secrets = (MADE.secret, bytes(range(32)))
    keys = tuple(Derivation(SCOPE_KEY).derive(secret, header.binding)[0] for secret in secrets)
    associated = envelope._associated_data(PREFIX, 1001, TOPIC)
    sealed = ciphertext_under_two_keys((keys[0], keys[1]), envelope._nonce(1001), associated)
    contents = {AESGCM(key).decrypt(envelope._nonce(1001), sealed, associated) for key in keys}
    assert len(contents) == 2  # the attack on bare AES-GCM works
    assert open_key(header, secrets[0], SCOPE_KEY).open(PREFIX, 1001, TOPIC, sealed) in contents
    with pytest.raises(BadContent):
        open_key(header, secrets[1], SCOPE_KEY)


# ------------------------------------------------------------------------------------------- exposure


def test_keys_show_nothing_and_do_not_travel() -> None:
    assert MADE.secret.hex() not in repr(MADE.key)
    assert repr(MADE.key) == f"DataKey({MADE.header.key_id.hex()})"
    for key in (MADE.key, PUBLISHER):
        with pytest.raises(OurFault):
            pickle.dumps(key)
        with pytest.raises(OurFault):
            copy.copy(key)


def test_the_public_face_has_what_it_promises() -> None:
    assert all(hasattr(envelope, name) for name in envelope.__all__)
    assert envelope.NO_ORDER == (0, 0)
