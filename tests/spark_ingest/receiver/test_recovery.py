"""What a receiver remembers over a restart, and that a damaged memory is said rather than guessed."""

from __future__ import annotations

import hashlib
import json
import zlib

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_ingest.errors import SpoolDamaged
from spark_ingest.receiver import recovery
from spark_ingest.receiver.recovery import recovered, state_of
from spark_ingest.receiving.seen import Seen
from spark_ingest.secrets.sharebox import ShareBox
from spark_ingest.spool.writer import SpooledKey

LOCAL = hashlib.sha256(b"local key").digest()
GATEWAY = b"g" * 32
KEYS = [SpooledKey(b"header 1", b"\x01shares"), SpooledKey(b"header 2", b"")]


def batch(*rows: tuple[int, str | None, bytes | None]) -> pa.RecordBatch:
    """Rows as the spool has them: sequence, reason, key header."""
    return pa.RecordBatch.from_pylist(
        [
            {"publisher": GATEWAY, "sequence": sequence, "wire_topic": "plant/1", "retain": False, "reason": reason,
             "key_header": header, "shares": None if header is None else b"\x01of " + header}
            for sequence, reason, header in rows
        ],
        schema=pa.schema([
            ("publisher", pa.binary()), ("sequence", pa.int64()), ("wire_topic", pa.string()), ("retain", pa.bool_()),
            ("reason", pa.string()), ("key_header", pa.binary()), ("shares", pa.binary()),
        ]),
    )  # fmt: skip


@given(st.lists(st.tuples(st.integers(1, 200), st.booleans()), max_size=30))
def test_what_was_seen_is_seen_again(marks: list[tuple[int, bool]]) -> None:
    seen = Seen()
    for sequence, retain in marks:
        seen.mark_written(GATEWAY, sequence, "plant/1", retain)
    again, keys = recovered(state_of(seen, KEYS), [])
    assert again.to_json() == seen.to_json()
    assert keys == KEYS


def test_rows_after_the_state_count_too_and_those_of_the_quarantine_do_not() -> None:
    seen = Seen()
    seen.mark_written(GATEWAY, 1, "plant/1", False)
    rows = batch((2, None, b"header 3"), (3, "frame: torn", None), (4, None, None))
    again, keys = recovered(state_of(seen, KEYS), [rows])
    assert [again.has_written(GATEWAY, number, "plant/1", False) for number in (1, 2, 3, 4)] == [
        True,
        True,
        False,
        True,
    ]
    assert keys == [*KEYS, SpooledKey(b"header 3", b"\x01of header 3")]


def test_nothing_is_nothing() -> None:
    seen, keys = recovered(b"", [])
    assert not seen.knows_author(GATEWAY)
    assert keys == []


def test_shares_are_sealed_and_open_with_the_local_key_alone() -> None:
    state = state_of(Seen(), KEYS, ShareBox(LOCAL, bytes))
    assert b"shares" not in zlib.decompress(state)
    assert recovered(state, [], LOCAL)[1] == KEYS
    assert recovered(state, [], hashlib.sha256(b"another").digest())[1] == [KEYS[1]], "told again by their publishers"


def test_of_too_many_keys_those_told_last_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recovery, "KEYS_KEPT", 2)
    rows = batch((1, None, b"header 3"), (2, None, b"header 1"))
    _, keys = recovered(state_of(Seen(), KEYS), [rows])
    assert [key.header for key in keys] == [b"header 3", b"header 1"]


@pytest.mark.parametrize(
    "state",
    [
        b"nonsense",
        zlib.compress(b"nonsense"),
        zlib.compress(b"[]"),
        zlib.compress(json.dumps({"version": 1, "seen": {}, "keys": []}).encode()),
        zlib.compress(json.dumps({"version": 2, "keys": []}).encode()),
        zlib.compress(json.dumps({"version": 2, "seen": {"windows": 3}, "keys": []}).encode()),
    ],
)
def test_a_state_that_is_none_of_ours_is_one_line_with_its_cure(state: bytes) -> None:
    with pytest.raises(SpoolDamaged, match="take away the spool directory and start anew"):
        recovered(state, [])
