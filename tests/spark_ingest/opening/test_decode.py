"""The executors' side: what opens with which keys, and why the rest stays closed."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from keys.envelope import KeyName, Mode
from keys.epochs import Calendar
from spark_ingest.errors import SpoolDamaged
from spark_ingest.opening import decode
from spark_ingest.opening.decode import TopicSet, which
from spark_ingest.opening.rows import RowReader
from spark_ingest.secrets.grants import Grants
from spark_ingest.spool.view import SpoolView
from tests.spark_ingest.opening.test_rows import Job
from tests.spark_ingest.region import (
    NOW,
    TOKEN_KEY,
    Overlay,
    corrupt,
    token_topic,
    write_grants,
)


@pytest.fixture
def job(tmp_path: Path) -> Job:
    return Job(tmp_path)


def test_plain_and_shares_only_scopes(tmp_path: Path) -> None:
    overlay = Overlay()
    overlay.change(keyed=False)
    job = Job(tmp_path, overlay)
    job.publish(job.publisher.seal("plant/a", b"shares"))
    overlay.change(mode=Mode.PLAIN)
    job.publish(job.publisher.seal("plant/b", b"plain"))
    assert [row["payload"] for row in job.rows()] == [b"shares", b"plain"]


def test_sealed_and_plain_rows_of_one_batch_keep_every_byte_beside_a_closed_one(tmp_path: Path) -> None:
    overlay = Overlay()
    job = Job(tmp_path, overlay)
    payloads = [bytes([number, *bytes(number)]) for number in range(9)]
    for number, payload in enumerate(payloads):
        overlay.change(mode=Mode.PLAIN if number % 3 == 1 else Mode.COPIES)
        job.link.publish(job.publisher.seal("plant/a", payload))
        (group,) = job.link.write()
        (record,) = group.records
        if number in (3, 4):
            assert record.sealed is not None
            record = record._replace(sealed=record.sealed[:-1])
        job.writer.append([record], group.keys)
    assert [row["payload"] for row in job.rows()] == payloads[:3] + payloads[5:]
    assert [row["sequence"] for row in job.rows("quarantine")] == [4, 5]
    assert all(row["reason"].startswith(("content", "frame")) for row in job.rows("quarantine"))


def test_hidden_topic_names(tmp_path: Path) -> None:
    overlay = Overlay(scopes=(token_topic("plant") + "/#",))
    job = Job(tmp_path, overlay, overlay.held(token_key=TOKEN_KEY))
    sealed = [
        job.publisher.seal("plant/a", b"1", token_key=TOKEN_KEY),
        job.publisher.seal("plant/a", b"2", token_key=TOKEN_KEY, retain=True),
        job.publisher.seal("plant/a", b"3", token_key=TOKEN_KEY, retain=True, inner_topic="plant/b"),
    ]
    job.publish(*sealed)
    assert [row["payload"] for row in job.rows(topics="plant/a")] == [b"1", b"2"]
    (closed,) = job.rows("quarantine")
    assert closed["wire_topic"] == sealed[2].topic == sealed[1].topic != sealed[0].topic


@pytest.mark.parametrize("inner", ["plant/#", "plant/+", "plant/\0a", "/".join(["plant"] * 300), "a" * 65_535])
@pytest.mark.parametrize("retain", [False, True])
def test_a_sealed_topic_that_none_can_be_costs_its_own_row_and_no_query(
    tmp_path: Path, inner: str, retain: bool
) -> None:
    """Only who opens it sees it: any publisher with a right to some topic can seal it."""
    overlay = Overlay(scopes=(token_topic("plant") + "/#",))
    job = Job(tmp_path, overlay, overlay.held(token_key=TOKEN_KEY))
    job.publish(
        job.publisher.seal("plant/a", b"1", token_key=TOKEN_KEY, retain=retain),
        job.publisher.seal("plant/a", b"2", token_key=TOKEN_KEY, retain=retain, inner_topic=inner),
    )
    assert [row["payload"] for row in job.rows()] == [b"1"]
    (closed,) = job.rows("quarantine")
    assert closed["reason"].startswith("content")


def test_another_epoch_key_is_named_as_such(job: Job) -> None:
    scope = job.overlay.held({KeyName("plant/#", 0, 0)}).scopes["plant/#"]
    write_grants(job.grants, Grants({"plant/#": replace(scope, keys=dict.fromkeys(scope.keys, bytes(31) + b"x"))}))
    job.publish(job.publisher.seal("plant/a"))
    assert not job.rows()
    (row,) = job.rows("quarantine")
    assert row["reason"].startswith("grant: another epoch key")


def test_ciphertext_that_was_changed_on_disk_stays_closed(job: Job) -> None:
    sealed = job.publisher.seal("plant/a", b"true")
    job.link.publish(sealed)
    (group,) = job.link.write()
    changed = group.records[0]._replace(sealed=sealed.content[:-1] + bytes([sealed.content[-1] ^ 1]))
    moved = group.records[0]._replace(wire_topic="plant/elsewhere")
    renumbered = group.records[0]._replace(sequence=99)
    stranger = group.records[0]._replace(publisher=bytes(16))
    kept = group.records[0]._replace(retain=True)
    job.writer.append([changed, moved, renumbered], group.keys)
    job.writer.append([group.records[0], stranger, kept], group.keys)
    with pytest.raises(SpoolDamaged, match="changed on disk"):
        job.rows()
    rows = job.rows(failOnDataLoss="false")
    assert [row["payload"] for row in rows] == [b"true"], "the one that was not changed"
    reasons = Counter(row["reason"].split(":")[0] for row in job.rows("quarantine"))
    assert reasons == {"content": 2, "frame": 3}


def test_a_corrupted_share_in_the_spool_opens_nothing(job: Job) -> None:
    from keys.sharetree import encode_shares

    sealed = job.publisher.seal("plant/a")
    job.link.publish(sealed)
    (group,) = job.link.write()
    assert sealed.key is not None
    shares = encode_shares([corrupt(sealed.key[2][0]), sealed.key[2][1]])
    bad = {k: replace(m, shares=shares) for k, m in group.keys.items()}
    job.writer.append(group.records, bad)
    assert not job.rows()
    (row,) = job.rows("quarantine")
    assert row["reason"].startswith("content")


def test_shares_that_are_corrupted_in_one_group_close_no_row_of_another(job: Job) -> None:
    """Else a row depended on what its worker process read before, and could be in neither stream."""
    groups = []
    for _ in range(2):
        job.link.publish(job.publisher.seal("plant/a"))
        groups += job.link.write()
    ((key_id, good),) = groups[0].keys.items()
    bad = replace(good, shares=good.shares[:-1] + bytes([good.shares[-1] ^ 1]))
    job.writer.append(groups[0].records, {key_id: bad})
    job.writer.roll(b"")
    job.writer.append(groups[1].records, groups[1].keys)
    reader, view = RowReader(job.options()), SpoolView(job.root)
    rows = [batch.num_rows for extent in view.ranges({}, view.advance({}), 9) for batch in reader.read(extent)]
    assert sum(rows) == 1
    assert len(job.rows("quarantine")) == 1


def test_a_key_that_is_learned_later_is_used_without_a_restart(job: Job) -> None:
    job.publish(job.publisher.seal("plant/a"))
    write_grants(job.grants, job.overlay.held(set()))
    reader = RowReader(job.options())
    view = SpoolView(job.root)
    (extent,) = view.ranges({}, view.advance({}), 1)
    assert not list(reader.read(extent))
    write_grants(job.grants, job.overlay.held())
    assert sum(batch.num_rows for batch in reader.read(extent)) == 1


def test_rows_of_several_epochs_and_bumps_open_with_a_key_each(tmp_path: Path) -> None:
    overlay = Overlay(calendar=Calendar(int(NOW * 1000), 100, grace_s=20, skew_s=5))
    job = Job(tmp_path, overlay)
    for epoch in range(3):
        now = NOW + 100 * epoch
        overlay.change(bump=epoch // 2)
        job.publish(job.publisher.seal("plant/a", b"%d" % epoch, time=now), now=now)
    assert [row["payload"] for row in job.rows()] == [b"0", b"1", b"2"]
    write_grants(job.grants, overlay.held({KeyName("plant/#", 2, 0), KeyName("plant/#", 1, 0)}))
    assert [row["payload"] for row in job.rows()] == [b"1"]
    first, second = (row["reason"] for row in job.rows("quarantine"))
    assert first.endswith("scope plant/#, epoch 0, bump 0")
    assert second.endswith("scope plant/#, epoch 2, bump 1")


@given(st.lists(st.sampled_from(["plant/1", "plant/2/x", "lab/1", "$SYS/x"]), max_size=30))
def test_each_topic_of_a_column_is_asked_for_once(topics: list[str]) -> None:
    asked: list[str] = []
    wanted = TopicSet(["plant/#"])

    def ask(topic: str) -> bool:
        asked.append(topic)
        return topic in wanted

    expected = [topic.startswith("plant/") for topic in topics]
    assert which(pa.array(topics, pa.string()), ask).tolist() == expected
    assert sorted(asked) == sorted(set(topics))
    assert which(pa.array(topics, pa.string()).dictionary_encode(), ask).tolist() == expected


def test_what_is_remembered_of_topics_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decode, "TOPICS_REMEMBERED", 3)
    wanted = TopicSet(["plant/+", "lab/#"])
    for _ in range(2):
        assert [f"{room}/1" in wanted for room in ("plant", "lab", "ward", "hall")] == [True, True, False, False]
    assert len(wanted._known) <= 3
