"""Gateway and ingest job take the same records of a batch: what local clients get is what becomes a row.

One record of three is altered, sealed and signed by its publisher. The batch goes to both as it would come, and what
each hands out is compared field by field. Not here: headers, keys and shares (`test_one_rule`).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from keys.records import DROPPED, NUMBER, NUMBER_MAX, QOS, RETAIN, TOMBSTONE, Extras, encode
from tests.sim.judges import Judges, disagreements, executor_of
from tests.sim.test_one_rule import SENT, Forge

pytestmark = pytest.mark.invariant(10)

MS = int(SENT * 1000)
YEAR_9999_MS = 253_402_300_799_999


def extras(**fields: Any) -> bytes:
    texts = [fields.pop(name, None) for name in ("content_type", "response_topic", "correlation_data", "format")]
    return Extras(sealed=tuple(texts), **fields).encode()


def number(value: int) -> bytes:
    return bytes([NUMBER]) + value.to_bytes(8, "little")


RECORDS: dict[str, tuple[bool, dict[str, Any]]] = {
    "as it should be": (True, {}),
    "of QoS 2": (True, {"flags": 2}),
    "with everything": (
        True,
        {
            "extras": extras(
                content_type="text/csv",
                response_topic="plant/r",
                correlation_data=b"\0",
                format=1,
                expiry_s=9,
                number=77,
                properties=(("k", "1"), ("k", "2")),
            )
        },
    ),
    "that only counts": (False, {"flags": 1 | DROPPED}),
    "that only counts, on a topic of nobody": (False, {"flags": 1 | DROPPED, "topic": b"\xff"}),
    "that is retained where the batch is not": (False, {"flags": 1 | RETAIN}),
    "that clears where nothing is retained": (False, {"flags": 1 | RETAIN | TOMBSTONE}),
    "of the last millisecond": (True, {"time_ms": YEAR_9999_MS}),
    "of a year that no calendar shows": (False, {"time_ms": YEAR_9999_MS + 1}),
    "of the end of all numbers": (False, {"time_ms": (1 << 63) - 1}),
    "of 1970": (True, {"time_ms": 0}),
    "with the last number": (True, {"extras": number(NUMBER_MAX)}),
    "with a number that is none": (False, {"extras": number(NUMBER_MAX + 1)}),
    "with the number 2^64 - 1": (False, {"extras": number((1 << 64) - 1)}),
    "on a topic with U+0000": (False, {"topic": b"plant/\0"}),
    "on a topic that is no UTF-8": (False, {"topic": b"plant/\xff"}),
    "on a filter": (False, {"topic": b"plant/+"}),
    "on a topic of the broker's own": (False, {"topic": b"$SYS/a"}),
    "on another scope's topic": (False, {"topic": b"open/a"}),
    "on the deepest topic": (True, {"topic": b"plant" + b"/a" * 127}),
    "on a deeper one": (False, {"topic": b"plant" + b"/a" * 128}),
    "with U+0000 in its content type": (False, {"extras": extras(content_type="a\0")}),
    "with U+0000 in a name": (False, {"extras": extras(properties=(("a", "b"), ("\0", "b")))}),
    "with U+0000 in a value": (False, {"extras": extras(properties=(("a", "b"), ("a", "b\0")))}),
    "with U+0000 in what is no text": (True, {"extras": extras(correlation_data=b"\0"), "payload": b"\0"}),
    "with a response topic": (True, {"extras": extras(response_topic="else/where")}),
    "with an empty response topic": (False, {"extras": extras(response_topic="")}),
    "with a filter as response topic": (False, {"extras": extras(response_topic="a/#")}),
    "with U+0000 in its response topic": (False, {"extras": extras(response_topic="a\0")}),
    "with a response topic too deep": (False, {"extras": extras(response_topic="/" * 128)}),
    "with extras that end too late": (False, {"extras": extras(expiry_s=9) + b"x"}),
    "with extras of a flag that is none": (False, {"extras": b"\x80"}),
    "that came in time": (True, {"extras": extras(expiry_s=10), "time_ms": MS - 10_000}),
    "that came too late": (False, {"extras": extras(expiry_s=10), "time_ms": MS - 10_001}),
    "that ended when it came": (True, {"extras": extras(expiry_s=0)}),
}
WHOLE: dict[str, dict[str, Any]] = {
    "of QoS 3": {"flags": QOS},
    "with a flag that is none": {"flags": 1 | 64},
    "that clears and is not retained": {"flags": 1 | TOMBSTONE},
}
"""Structure: these fail their whole batch."""
RETAINED: dict[str, tuple[bool, dict[str, Any]]] = {
    "as it should be": (True, {}),
    "that clears": (True, {"flags": 1 | RETAIN | TOMBSTONE, "payload": b""}),
    "that only counts": (False, {"flags": 1 | RETAIN | DROPPED}),
    "that is not retained": (False, {"flags": 1}),
    "of another topic": (False, {"topic": b"plant/b"}),
    "with the header's number": (True, {"extras": number(7)}),
    "with another number": (False, {"extras": number(8)}),
    "of a year that no calendar shows": (False, {"time_ms": YEAR_9999_MS + 1}),
}


def content(*records: dict[str, Any]) -> bytes:
    """Records as they stand, whatever that is; what is not said is usual."""
    each = [{"flags": 1, "time_ms": MS, "topic": b"plant/a", "extras": b"", "payload": b"21.5"} | r for r in records]
    columns = [[record[name] for record in each] for name in ("flags", "time_ms", "topic", "extras", "payload")]
    return encode(bytes(columns[0]), *columns[1:])


def handed_out(tmp_path: Path, clear: bytes, **fields: Any) -> Judges:
    """What both made of a batch with this content."""
    forge = Forge()
    key, data_key, shares = forge.key()
    wire = forge.sealed(key, data_key, clear=clear, **fields)
    assert not disagreements(forge.judged(key, shares, wire, executor=executor_of(forge.world, tmp_path / "keys")))
    judges = forge.judges
    assert judges.given == judges.opened
    return judges


@pytest.mark.parametrize("record", RECORDS)
def test_one_record_of_three(tmp_path: Path, record: str) -> None:
    holds, fields = RECORDS[record]
    judges = handed_out(tmp_path, content({"payload": b"before"}, fields, {"payload": b"behind"}))
    assert [judges.given.pop(7).payload, judges.given.pop(9).payload] == [b"before", b"behind"]
    assert len(judges.given) == holds


@pytest.mark.parametrize("record", WHOLE)
def test_what_fails_all_of_a_batch(tmp_path: Path, record: str) -> None:
    made = bytearray(content({}, {}, {}))
    made[17] = WHOLE[record]["flags"]
    assert not handed_out(tmp_path, bytes(made)).given


@pytest.mark.parametrize("record", RETAINED)
def test_a_retained_record(tmp_path: Path, record: str) -> None:
    holds, fields = RETAINED[record]
    judges = handed_out(tmp_path, content({"flags": 1 | RETAIN, **fields}), topic="own", retain=True)
    assert len(judges.given) == holds


def test_several_records_where_one_is_retained(tmp_path: Path) -> None:
    several = content(*({"flags": 1 | RETAIN} for _ in range(2)))
    assert not handed_out(tmp_path, several, topic="own", retain=True).given
