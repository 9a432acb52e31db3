"""Shares at rest: open under their own local key, for their own key header, and for nothing else."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_ingest.secrets.sharebox import ShareBox, ShareOpener
from spark_ingest.spool import SpooledKey

KEY, OTHER = b"k" * 32, b"o" * 32
CLEAR = SpooledKey(b"header", b"\1shares in clear")


def box(key: bytes = KEY) -> ShareBox:
    return ShareBox(key, random.Random(1).randbytes)


def test_what_is_sealed_opens_under_its_key_and_shows_nothing() -> None:
    sealed = box().seal(CLEAR)
    assert sealed.header == CLEAR.header
    assert b"clear" not in sealed.shares
    assert len(sealed.shares) == len(CLEAR.shares) + 1 + 4 + 12 + 16
    assert ShareOpener([OTHER, KEY]).open(sealed) == CLEAR
    assert ShareOpener([OTHER]).open(sealed) is None
    assert ShareOpener([]).open(sealed) is None


def test_shares_are_bound_to_their_key_header() -> None:
    sealed = box().seal(CLEAR)
    assert ShareOpener([KEY]).open(SpooledKey(b"another header", sealed.shares)) is None


def test_every_sealing_has_a_nonce_of_its_own() -> None:
    one = box()
    first, second = one.seal(CLEAR), one.seal(CLEAR)
    assert first.shares[5:17] != second.shares[5:17]
    assert first.shares[17:] != second.shares[17:]


def test_what_an_older_receiver_wrote_in_clear_is_read_and_no_shares_stay_none() -> None:
    assert ShareOpener([]).open(CLEAR) == CLEAR
    nothing = SpooledKey(b"header", b"")
    assert box().seal(nothing) is nothing
    assert ShareOpener([KEY]).open(nothing) == nothing


def test_of_many_those_open_that_can() -> None:
    mine, others = box().seal(CLEAR), box(OTHER).seal(SpooledKey(b"h2", b"\1s2"))
    assert ShareOpener([KEY]).open_all([mine, others, CLEAR]) == [CLEAR, CLEAR]
    sealed = box().seal_all({b"id": CLEAR})
    assert ShareOpener([KEY]).open(sealed[b"id"]) == CLEAR


@pytest.mark.parametrize("at", range(len(box().seal(CLEAR).shares)))
def test_a_changed_byte_or_a_missing_end_opens_nothing(at: int) -> None:
    sealed = bytearray(box().seal(CLEAR).shares)
    opener = ShareOpener([KEY])
    if at:
        assert opener.shares(CLEAR.header, bytes(sealed[:at])) is None
        sealed[at] ^= 1
        assert opener.shares(CLEAR.header, bytes(sealed)) is None


@given(st.binary(max_size=60))
def test_no_bytes_raise_anything(data: bytes) -> None:
    found = ShareOpener([KEY]).shares(b"header", data)
    assert found == (None if data[:1] == b"\0" else data)
