"""Many keys opened at once are those that are opened one by one, and a wrong one spoils no other."""

from __future__ import annotations

import hashlib
from dataclasses import replace

import pytest

from keys import keyopening
from keys.envelope import KeyHeader, KeyName, make_key, open_key
from keys.errors import BadContent, BadFrame, BadShare, KeysError, WrongEpochKey
from keys.identity import Identity
from keys.keyopening import KeyOpener, SealedKey, key_id_of, publisher_of
from keys.sharetree import Hop, Share, encode_shares, resplit

PUBLISHER = Identity.generate(bytes(32))
EPOCH_KEY = hashlib.sha256(b"epoch").digest()
HOPS = (Hop(1, 1, 2, 3), Hop(2, 4, 2, 3))


def made(
    number: int, hops: tuple[Hop, ...] = HOPS, scope_key: bytes | None = EPOCH_KEY, scope: str = "plant/#"
) -> tuple[KeyHeader, list[Share]]:
    stream = iter(range(1000))
    header, _, shares = make_key(
        PUBLISHER, KeyName(scope, 7, 1), hops, number, 64, scope_key,
        lambda size: hashlib.shake_256(f"{number}/{next(stream)}".encode()).digest(size),
    )  # fmt: skip
    return header, shares


def sealed(opener: KeyOpener, header: bytes, shares: bytes, scope_key: bytes | None = EPOCH_KEY) -> SealedKey:
    return SealedKey(key_id_of(header), opener.outline(header), header, shares, scope_key)


def test_keys_of_any_places_and_scopes_open_as_one_by_one() -> None:
    from keys.shamir import combine

    opener = KeyOpener()
    wanted, expected = [], []
    for number in range(12):
        scope_key = EPOCH_KEY if number % 3 else None
        header, shares = made(number, HOPS[: 1 + number % 2], scope_key)
        chosen = shares[:2] if number % 4 else shares[1:]
        secret = combine({share.label[0].place: share.value for share in chosen})
        expected.append(open_key(header, secret, scope_key))
        wanted.append(sealed(opener, header.encode(), encode_shares(chosen), scope_key))
    prefix = bytes(36) + (5).to_bytes(8) + bytes(37)
    for found, one in zip(opener.open_keys(wanted), expected, strict=True):
        assert not isinstance(found, KeysError)
        assert found.key_id == one.key_id
        content = one._aead.encrypt((5).to_bytes(12), b"content", b"\x01" + prefix + b"\x00\x01t")
        assert found.open(prefix, 5, "t", content) == b"content"


def test_a_wrong_key_is_named_and_spoils_no_other() -> None:
    opener = KeyOpener()
    header, shares = made(1)
    encoded, good = header.encode(), encode_shares(shares[:2])
    bad = replace(shares[0], value=bytes(32))
    deep = resplit(shares[0], header.digest, HOPS[1], bytes(32))
    wanted = [
        sealed(opener, encoded, good),
        sealed(opener, encoded, encode_shares([bad, shares[1]])),
        sealed(opener, encoded, encode_shares(shares)),
        sealed(opener, encoded, good[:-1]),
        sealed(opener, encoded, b""),
        sealed(opener, encoded, encode_shares(deep[:2])),
        sealed(opener, encoded, good, bytes(31) + b"x"),
        sealed(opener, encoded, good),
    ]
    found = opener.open_keys(wanted)
    kinds = [type(each) if isinstance(each, KeysError) else None for each in found]
    assert kinds == [None, BadContent, BadShare, BadFrame, BadFrame, BadShare, WrongEpochKey, None]


def test_every_truncation_of_a_header_is_refused_also_after_a_good_one() -> None:
    opener = KeyOpener()
    encoded = made(1)[0].encode()
    opener.outline(encoded)
    for size in range(len(encoded)):
        with pytest.raises(BadFrame):
            opener.outline(encoded[:size])
    with pytest.raises(BadFrame):
        opener.outline(encoded + b"\0")


@pytest.mark.parametrize("scope", ["plant/#", "pl/#", " " * 600])
def test_what_is_checked_of_a_header_does_not_depend_on_what_came_before(scope: str) -> None:
    """Each byte of the frame, changed: the outline is that of `decode`, or both refuse."""
    encoded = made(1, scope=scope)[0].encode()
    for at in range(len(encoded)):
        changed = encoded[:at] + bytes([encoded[at] ^ 0x81]) + encoded[at + 1 :]
        opener = KeyOpener()
        opener.outline(encoded)
        try:
            decoded = KeyHeader.decode(changed)
        except BadFrame:
            with pytest.raises(BadFrame):
                opener.outline(changed)
        else:
            outline = opener.outline(changed)
            assert (outline.name, outline.threshold) == (decoded.epoch_key, decoded.hops[0].threshold)
            assert changed[: outline.preamble_bytes] == decoded.preamble
            assert (key_id_of(changed), publisher_of(changed)) == (decoded.key_id, decoded.publisher)


def test_a_key_for_no_message_is_refused() -> None:
    opener = KeyOpener()
    encoded = made(1)[0].encode()
    end = opener.outline(encoded).preamble_bytes
    with pytest.raises(BadFrame, match="at least one message"):
        opener.outline(encoded[: end - 4] + bytes(4) + encoded[end:])


def test_nothing_secret_is_shown() -> None:
    header, shares = made(1)
    shown = repr(sealed(KeyOpener(), header.encode(), encode_shares(shares[:2])))
    for secret in (EPOCH_KEY, shares[0].value):
        assert repr(secret)[2:-1] not in shown
        assert secret.hex() not in shown


def test_what_is_remembered_is_of_each_kind_once_and_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keyopening, "OUTLINES_KEPT", 3)
    opener = KeyOpener()
    for number in range(3):
        header, shares = made(number)
        opener.open_keys([sealed(opener, header.encode(), encode_shares(shares[:2]))])
    assert [len(known) for known in (opener._outlines, opener._places, opener._derivations)] == [1, 1, 1]
    for number, left in enumerate((2, 3, 1, 2)):
        key = bytes([number] * 31 + [1])
        header, shares = made(number, scope_key=key)
        (found,) = opener.open_keys([sealed(opener, header.encode(), encode_shares(shares[:2]), key)])
        assert not isinstance(found, KeysError)
        assert len(opener._derivations) == left


def test_a_wrapped_key_opens_like_any_other_and_another_flag_is_refused() -> None:
    header, shares = made(1)
    wrapped = replace(header, wrapped=True)
    frame = replace(wrapped, signature=PUBLISHER.sign("veilmq/1 key", wrapped.signed_bytes)).encode()
    assert KeyHeader.decode(frame).wrapped
    assert frame[:3] == bytes([1, 2, 1])
    opener = KeyOpener()
    for each in (header.encode(), frame, header.encode()):
        assert opener.outline(each) == opener.outline(header.encode())
    with pytest.raises(BadFrame):
        KeyOpener().outline(frame[:2] + b"\2" + frame[3:])
    assert key_id_of(frame) == KeyHeader.decode(frame).key_id != header.key_id
    assert shares
