"""What an entity says of itself through its witnesses: readable by all, alterable by none."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from keys.errors import BadSignature, KeysError, OurFault
from keys.identity import Identity
from keys.ownword import BODY_MAX_BYTES, OwnWord
from tests.keys.helpers import assert_strict

PUMP, WITNESS = (Identity.generate(bytes([n]) * 32) for n in (1, 2))
WORD = OwnWord(1_800_000_000_000, 7, 1_800_000_000_500, 3, b'{"state":"READY"}').signed(PUMP)


def test_it_reads_back_and_holds() -> None:
    assert OwnWord.decode(WORD.encode()) == WORD
    WORD.verify(PUMP.public_bytes)
    assert b"READY" not in repr(WORD).encode()


@pytest.mark.parametrize("changed", [{"since_ms": 1}, {"number": 8}, {"time_ms": 1}, {"kind": 4}, {"body": b"{}"}])
def test_a_witness_alters_nothing(changed: dict[str, int | bytes]) -> None:
    with pytest.raises(BadSignature):
        replace(WORD, **changed).verify(PUMP.public_bytes)  # type: ignore[arg-type]
    with pytest.raises(BadSignature):
        replace(WORD, **changed).signed(WITNESS).verify(PUMP.public_bytes)  # type: ignore[arg-type]


def test_it_is_bounded() -> None:
    with pytest.raises(OurFault, match="at most"):
        replace(WORD, body=bytes(BODY_MAX_BYTES + 1)).signed(PUMP)


@given(st.data())
def test_a_flipped_bit_is_noticed_and_no_bytes_raise_anything_else(data: st.DataObject) -> None:
    whole = bytearray(WORD.encode())
    whole[data.draw(st.integers(0, len(whole) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    with pytest.raises(KeysError):
        OwnWord.decode(bytes(whole)).verify(PUMP.public_bytes)
    with pytest.raises(KeysError):
        OwnWord.decode(data.draw(st.binary(max_size=200)))


def test_the_frame_is_strict_the_longest_body_passes_and_no_signature_shows() -> None:
    assert_strict(OwnWord.decode, OwnWord.encode, WORD.encode())  # type: ignore[arg-type]
    longest = replace(WORD, body=bytes(BODY_MAX_BYTES)).signed(PUMP)
    assert OwnWord.decode(longest.encode()) == longest
    assert repr(WORD.signature)[2:-1] not in repr(WORD)


def test_it_is_signed_in_a_domain_of_its_own() -> None:
    assert WORD.signature == PUMP.sign("veilmq/1 own word", WORD.signed_bytes())
