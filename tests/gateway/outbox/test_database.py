"""The outbox's database: rows that open again, predecessors, pages, and what others find on the disk."""

from __future__ import annotations

import contextlib
import random
import shutil
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bridge.contract.batches import Chain
from bridge.contract.machine import Publication
from gateway.data import StoreError
from gateway.outbox import database as module
from gateway.outbox.database import (
    MS_NUMBERS,
    SEQUENCE_BLOCK,
    Outbox,
    StoredRow,
    decode_publication,
    encode_publication,
)

KEY = bytes(range(32))
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
publications = st.builds(
    Publication,
    topic=texts,
    payload=st.binary(max_size=200),
    qos=st.integers(0, 2),
    retain=st.booleans(),
    content_type=st.none() | texts,
    response_topic=st.none() | texts,
    correlation_data=st.none() | st.binary(max_size=20),
    payload_format=st.none() | st.integers(0, 1),
    properties=st.lists(st.tuples(texts, texts), max_size=3).map(tuple),
    expiry_s=st.none() | st.integers(0, 2**32 - 1),
    time_ms=st.integers(0, 2**63),
)


@given(publications)
@settings(max_examples=100, deadline=None)
def test_a_stored_publication_comes_back_with_every_field(publication: Publication) -> None:
    assert decode_publication(encode_publication(publication)) == publication


@pytest.mark.parametrize("said", [None, False, True])
def test_a_row_says_whether_its_scope_was_plain_or_that_nobody_knows(said: bool | None) -> None:
    assert decode_publication(encode_publication(Publication("a", b"", in_clear=said))).in_clear is said


@pytest.mark.parametrize("row", [b"", b"\1\0\0\0\xff{}", b"\2" + encode_publication(Publication("a", b""))[1:]])
def test_a_row_of_another_layout_is_refused(row: bytes) -> None:
    with pytest.raises(ValueError, match="row"):
        decode_publication(row)


@pytest.fixture
def outbox(tmp_path: Path) -> Iterator[Outbox]:
    made = Outbox(tmp_path / "outbox.sqlite3", KEY, 1)
    yield made
    made.close()


def row(sequence: int, chain: str = "t", qos: int = 1, size: int = 1) -> StoredRow:
    publication = Publication(chain, bytes(size), qos, time_ms=sequence)
    return StoredRow(sequence, Chain(chain), qos, encode_publication(publication), publication)


def commit(outbox: Outbox, *rows: StoredRow, gone: tuple[int, ...] = ()) -> list[int]:
    """The predecessors that were found."""
    assert outbox.commit(rows, gone, False, 5) is None
    return [each.previous for each in rows]


def numbers(outbox: Outbox, start: int = 0, skip: tuple[int, ...] = ()) -> list[int]:
    return [stored.sequence for stored in outbox.page(start, skip.__contains__).rows]


def test_rows_come_back_in_order_with_their_predecessors(outbox: Outbox) -> None:
    assert commit(outbox, row(1), row(2, "u"), row(3), row(4, qos=0), row(5)) == [0, 0, 1, 3, 3]
    page = outbox.page(0, lambda sequence: False)
    assert [(stored.sequence, stored.previous) for stored in page.rows] == [(1, 0), (2, 0), (3, 1), (4, 3), (5, 3)]
    assert page.rows[0].publication == row(1).publication
    assert (page.following, page.damaged) == (None, None)
    assert outbox.totals() == (5, sum(stored.size for stored in page.rows))


@pytest.mark.attack(5, 6)
@pytest.mark.parametrize("copy_of", ["nothing", "the first life"])
def test_no_number_is_used_again_after_a_lost_directory_or_with_an_old_copy(tmp_path: Path, copy_of: str) -> None:
    """Replicas and readers would take what has such a number for a repetition: acknowledged, and given to nobody."""
    used: list[tuple[int, int]] = []
    for now_ms in (1_000, 2_000):
        life = Outbox(tmp_path / "o", KEY, now_ms)
        used += [block for _ in range(3) if (block := life.commit((), (), True, now_ms)) is not None]
        life.close()
        if now_ms == 1_000:
            shutil.copy(tmp_path / "o", tmp_path / "copy")
    restored = tmp_path / ("lost" if copy_of == "nothing" else "copy")
    later = Outbox(restored, KEY, 1_000_000)
    block = later.commit((), (), True, 1_000_000)
    later.close()
    assert block is not None
    assert block[0] >= max(end for _, end in used)
    assert len({first for first, _ in used}) == len(used)


def test_rows_outlive_a_clock_that_goes_back(tmp_path: Path) -> None:
    for sequence, now_ms in ((1, 3_000_000), (2, 1), (3, 2)):
        made = Outbox(tmp_path / "o", KEY, now_ms)
        commit(made, row(sequence))
        made.close()
    made = Outbox(tmp_path / "o", KEY, 3)
    assert len(made.page(0, lambda _: False).rows) == 3
    made.close()


def test_predecessors_outlive_their_rows_and_a_restart(tmp_path: Path) -> None:
    first = Outbox(tmp_path / "o", KEY, 1)
    commit(first, row(1), gone=(1,))
    assert (first.holds_row(1), first.last_of_chain("t")) == (False, 1)
    first.close()
    again = Outbox(tmp_path / "o", KEY, 1)
    assert commit(again, row(9)) == [1]
    assert (again.last_of_chain("t"), again.last_of_chain("?")) == (9, 0)
    again.close()


def test_pages_end_by_rows_and_bytes_and_skip_what_somebody_has(
    outbox: Outbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "PAGE_ROWS", 3)
    commit(outbox, *(row(n) for n in range(1, 8)))
    page = outbox.page(0, (2).__eq__)
    assert ([stored.sequence for stored in page.rows], page.following) == ([1, 3], 4)
    assert numbers(outbox, 4) == [4, 5, 6]
    assert outbox.page(7, lambda sequence: False).following is None
    monkeypatch.setattr(module, "PAGE_BYTES", 1)
    assert (numbers(outbox), outbox.page(0, lambda sequence: False).following) == ([1, 2], 3), (
        "a row more, so that a large one does not stand in the way"
    )
    assert outbox.first_row(0) == (1, 5)
    assert outbox.first_row(8) is None


def test_a_block_of_numbers_is_reserved_once(outbox: Outbox) -> None:
    blocks = [outbox.commit((), (), True, 0) for _ in range(2)]
    first = MS_NUMBERS  # it was opened in the first millisecond
    assert blocks == [(first, first + SEQUENCE_BLOCK), (first + SEQUENCE_BLOCK, first + 2 * SEQUENCE_BLOCK)]


def test_a_group_that_fails_leaves_nothing_not_even_a_predecessor(outbox: Outbox) -> None:
    commit(outbox, row(1))
    with pytest.raises(StoreError):
        outbox.commit([row(2), row(1)], (), False, 5)
    assert numbers(outbox) == [1]
    assert commit(outbox, row(3)) == [1]


def test_a_row_that_does_not_open_is_left_out_and_named(tmp_path: Path) -> None:
    made = Outbox(tmp_path / "o", KEY, 1)
    commit(made, *(row(n) for n in (1, 2, 3)))
    with sqlite3.connect(tmp_path / "o") as db:
        db.execute("UPDATE outbox SET previous = 77 WHERE sequence = 2")
    db.close()
    page = made.page(0, lambda sequence: False)
    assert [stored.sequence for stored in page.rows] == [1, 3]
    assert "outbox entry 2" in str(page.damaged)
    made.close()
    other = Outbox(tmp_path / "o", bytes(32), 1)
    assert "another store key" in str(other.page(0, lambda sequence: False).damaged)
    other.close()


def test_ever_new_topics_fill_nothing_and_the_oldest_begin_anew(
    outbox: Outbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MAX_TOPICS", 16)
    monkeypatch.setattr(module, "TOPIC_CACHE", 4)
    for n in range(1, 41):
        commit(outbox, row(n, f"t{n}"))
        assert outbox._topic_count <= 16
        assert len(outbox._recent) <= 4
    assert (outbox.last_of_chain("t1"), outbox.last_of_chain("t40")) == (0, 40)
    assert commit(outbox, row(41, "t1"), row(42, "t40")) == [0, 40]


def test_neither_topics_nor_payloads_are_readable_on_disk(tmp_path: Path) -> None:
    made = Outbox(tmp_path / "o", KEY, 1)
    publication = Publication("ward/pulse", b"seventy-two", 1)
    made.commit([StoredRow(1, Chain("ward/pulse"), 1, encode_publication(publication), publication)], (), False, 0)
    made.close()
    content = (tmp_path / "o").read_bytes()
    assert b"ward" not in content
    assert b"seventy" not in content


def damaged(tmp_path: Path, statement: str) -> Path:
    """A data directory with one row, of whose database something is changed behind SQLite's back."""
    path = tmp_path / "outbox.sqlite3"
    box = Outbox(path, KEY, NOW_MS)
    first, _ = box.commit((), (), True, NOW_MS) or (0, 0)
    box.commit([row_of(first, "plant/#")], (), False, NOW_MS)
    box.close()
    db = sqlite3.connect(path)
    with db:
        db.execute(statement)
    db.close()
    return path


NOW_MS = 1_800_000_000_000


def row_of(sequence: int, chain: str) -> StoredRow:
    publication = Publication("plant/t", b"x", 1)
    return StoredRow(sequence, Chain(chain), 1, encode_publication(publication), publication)


@pytest.mark.parametrize("name", ["layout", "life", "next_sequence"])
@pytest.mark.parametrize("value", [(1 << 63) - 1, -1, "'x'", "x'00'"])
def test_a_number_that_a_disk_has_damaged_is_told_in_one_line(tmp_path: Path, name: str, value: object) -> None:
    path = damaged(tmp_path, f"INSERT OR REPLACE INTO facts VALUES ('{name}', {value})")
    with pytest.raises(StoreError, match=r"damaged|layout"):
        Outbox(path, KEY, NOW_MS + 1).commit((), (), True, NOW_MS + 1)


def test_a_damaged_predecessor_is_none(tmp_path: Path) -> None:
    """Who seals what follows a greater number is believed by nobody, and its outbox would offer it for ever."""
    path = damaged(tmp_path, f"UPDATE topics SET sequence = {1 << 62}")
    box = Outbox(path, KEY, NOW_MS + 1)
    first, _ = box.commit((), (), True, NOW_MS + 1) or (0, 0)
    rows = [row_of(first, "plant/#"), row_of(first + 1, "plant/#")]
    box.commit(rows, (), False, NOW_MS + 1)
    assert [row.previous for row in rows] == [0, first]
    box.close()


@pytest.mark.parametrize("seed", range(6))
def test_wherever_a_database_is_damaged_or_cut_it_is_told_in_one_line_or_opens(tmp_path: Path, seed: int) -> None:
    path, draw = tmp_path / "outbox.sqlite3", random.Random(seed)
    box = Outbox(path, KEY, NOW_MS)
    first, _ = box.commit((), (), True, NOW_MS) or (0, 0)
    box.commit([row_of(first + number, f"{number % 20}/#") for number in range(400)], (), False, NOW_MS)
    box.close()
    whole = path.read_bytes()
    for _ in range(12):
        told = bytearray(whole)
        if draw.random() < 0.5:
            del told[draw.randrange(100, len(told)) :]
        else:
            at = draw.randrange(100, len(told) - 64)
            told[at : at + 64] = draw.randbytes(64)
        path.write_bytes(told)
        for beside in ("-wal", "-shm"):
            path.with_name(path.name + beside).unlink(missing_ok=True)
        try:
            box = Outbox(path, KEY, NOW_MS + 1)
        except StoreError:
            continue
        with contextlib.suppress(StoreError):
            box.totals()
            box.page(0, lambda _: False)
            box.commit((), (), True, NOW_MS + 1)
        box.close()
