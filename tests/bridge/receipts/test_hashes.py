"""Trees of hashes: those of RFC 9162, and paths that lead nowhere else."""

from __future__ import annotations

import hashlib

import pytest

from bridge.contract import Numbered, Publication
from bridge.receipts.hashes import NO_RECORDS, PLAIN, RecordFacts, path, records_root, root, root_along, salt_of
from keys.errors import BadContent


def leaves(count: int) -> list[bytes]:
    return [hashlib.sha256(bytes([n])).digest() for n in range(count)]


def by_the_definition(hashes: list[bytes]) -> bytes:
    """RFC 9162 §2.1.1: split at the greatest power of two below the number."""
    if len(hashes) == 1:
        return hashes[0]
    half = 1
    while half * 2 < len(hashes):
        half *= 2
    return hashlib.sha256(b"\x01" + by_the_definition(hashes[:half]) + by_the_definition(hashes[half:])).digest()


@pytest.mark.parametrize("count", [*range(1, 20), 64, 65, 100])
def test_the_tree_is_the_one_of_the_standard(count: int):
    assert root(leaves(count)) == by_the_definition(leaves(count))


def test_the_published_root_of_eight_entries():
    """The eight entries of Certificate Transparency's reference tests; their leaves are hashed behind 0x00."""
    entries = [
        "", "00", "10", "2021", "3031", "40414243", "5051525354555657", "606162636465666768696a6b6c6d6e6f",
    ]  # fmt: skip
    hashed = [hashlib.sha256(b"\x00" + bytes.fromhex(entry)).digest() for entry in entries]
    assert root(hashed).hex() == "5dc9da79a70659a9ad559cb701ded9a2ab9d823aad2f4960cfe370eff4604328"


@pytest.mark.parametrize("count", range(1, 18))
def test_each_path_leads_to_the_root_and_no_other_place_does(count: int):
    found = leaves(count)
    for at, leaf in enumerate(found):
        way = path(found, at)
        assert root_along(leaf, at, count, way) == root(found)
        for other in range(count):
            if other != at:
                try:
                    wrong = root_along(leaf, other, count, way)
                except BadContent:
                    continue
                assert wrong != root(found)


@pytest.mark.parametrize(
    ("at", "of", "more"), [(0, 4, []), (0, 4, [bytes(32)] * 3), (4, 4, [bytes(32)] * 2), (0, 0, [])]
)
def test_a_path_of_another_length_is_refused(at: int, of: int, more: list[bytes]):
    with pytest.raises(BadContent):
        root_along(bytes(32), at, of, more)


def record(number: int = 7, payload: bytes = b"on", topic: str = "plant/t", time_ms: int = 5) -> RecordFacts:
    return RecordFacts.from_record(Numbered(number, Publication(topic, payload, 1, time_ms=time_ms)))


def test_the_hash_of_a_record_hangs_on_all_that_it_says():
    blinding = bytes(range(32))
    found = {
        records_root(blinding, [record()]),
        records_root(PLAIN, [record()]),
        records_root(blinding, [record(number=8)]),
        records_root(blinding, [record(payload=b"off")]),
        records_root(blinding, [record(topic="plant/u")]),
        records_root(blinding, [record(time_ms=6)]),
        records_root(blinding, [record(), record()]),
        records_root(blinding, []),
    }
    assert len(found) == 8
    assert records_root(blinding, []) == NO_RECORDS


def test_salts_differ_for_each_record():
    assert len({salt_of(bytes(32), number) for number in range(100)}) == 100
