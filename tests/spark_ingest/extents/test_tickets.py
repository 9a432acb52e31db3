"""Requests from the network: two forms, and an error for all else."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_ingest.errors import SpoolError
from spark_ingest.extents.tickets import TICKET_BYTES_MAX, KeysTicket, SegmentTicket, decode_ticket

GOOD = ["main", 1, 0, 100]


@pytest.mark.parametrize("ticket", [SegmentTicket("main.2", 99_999_999, 5, 5), KeysTicket("scope_keys.json")])
def test_there_and_back(ticket: SegmentTicket | KeysTicket) -> None:
    assert decode_ticket(ticket.encode()) == ticket


@pytest.mark.parametrize(
    "told",
    [
        [], 1, {}, {"keys": 1}, {"keys": "a", "segment": GOOD}, {"segment": "main"}, {"segment": GOOD[:3]},
        {"segment": ["../consumers", 1, 0, 1]}, {"segment": ["", 1, 0, 1]}, {"segment": ["a/b", 1, 0, 1]},
        {"segment": ["main", 0, 0, 1]}, {"segment": ["main", True, 0, 1]}, {"segment": ["main", 1, 2, 1]},
        {"segment": ["main", 1, -1, 1]}, {"segment": ["main", 1, 0, 1 << 63]}, {"segment": ["main", 1.0, 0, 1]},
        {"segment": ["main", "1", 0, 1]}, {"segment": ["main\n", 1, 0, 1]}, {"segment": [*GOOD, 1]},
        {"keys": "a" * TICKET_BYTES_MAX},
    ],
)  # fmt: skip
def test_all_else_is_refused(told: object) -> None:
    with pytest.raises(SpoolError, match="does not know"):
        decode_ticket(json.dumps(told).encode())


@given(st.binary(max_size=60))
def test_no_bytes_do_harm(data: bytes) -> None:
    try:
        decode_ticket(data)
    except SpoolError:
        return
    raise AssertionError("nobody makes a ticket by chance")
