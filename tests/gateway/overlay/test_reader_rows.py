"""What a gateway keeps of what it read is sealed, and opens for nobody else and in no other place."""

from __future__ import annotations

from gateway.overlay.reader_rows import ReaderRows

KEY, OWNER = bytes(range(32)), bytes(32)
ROWS = [(b"k1", b"secret of a data key"), (b"s2", b"")]


def sealed() -> dict[bytes, bytes]:
    return {key: value for key, value in ReaderRows(KEY, OWNER, "g").seal(ROWS) if value is not None}


def test_rows_come_back_and_gone_ones_stay_gone():
    rows = ReaderRows(KEY, OWNER, "g")
    assert rows.open(sealed()) == tuple(ROWS)
    assert rows.seal([(b"k1", None)]) == [(b"k1", None)]
    assert not any(value in row for row in sealed().values() for _, value in ROWS if value)


def test_another_key_owner_member_or_place_opens_nothing():
    for other in (ReaderRows(bytes(32), OWNER, "g"), ReaderRows(KEY, KEY, "g"), ReaderRows(KEY, OWNER, "h")):
        assert other.open(sealed()) == ()
    first, second = sealed().values()
    assert ReaderRows(KEY, OWNER, "g").open({b"k1": second, b"s2": first, b"x": b"short"}) == ()
