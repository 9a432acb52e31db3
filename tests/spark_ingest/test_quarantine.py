"""Every row of a spool is a row of some stream: whatever is wrong with one, it is in the quarantine with its reason."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest

from keys.envelope import KeyName, Mode
from keys.sharetree import decode_shares, encode_shares
from spark_ingest.errors import SpoolDamaged
from spark_ingest.receiving.sealings import Group
from spark_ingest.secrets.grants import Grants
from spark_ingest.spool.segments import ByteRange, read_groups, segment_path
from tests.spark_ingest.opening.test_rows import Job
from tests.spark_ingest.packs import filled
from tests.spark_ingest.region import NOW, Overlay, Publisher, write_grants


@pytest.fixture
def job(tmp_path: Path) -> Job:
    return Job(tmp_path)


def written(job: Job, group: Group, **fields: Any) -> None:
    """A group on disk as it is, but for some columns of its rows."""
    job.writer.append([record._replace(**fields) for record in group.records], group.keys)


def group_of(job: Job, payload: bytes = b"1") -> Group:
    job.link.publish(job.publisher.seal("plant/a", payload))
    (group,) = job.link.write()
    return group


def no_key(job: Job, group: Group) -> None:
    job.writer.append(group.records, {})


def another_key(job: Job, group: Group) -> None:
    job.publisher.new_key("plant/#")
    other = group_of(job)
    job.writer.append(group.records, {group.records[0].key_id: next(iter(other.keys.values()))})


def one_share(job: Job, group: Group) -> None:
    ((key_id, material),) = group.keys.items()
    shares = encode_shares(decode_shares(material.shares)[:1])
    job.writer.append(group.records, {key_id: replace(material, shares=shares)})


def odd_shares(job: Job, group: Group) -> None:
    ((key_id, material),) = group.keys.items()
    job.writer.append(group.records, {key_id: replace(material, shares=b"shares?")})


def odd_key_header(job: Job, group: Group) -> None:
    ((key_id, material),) = group.keys.items()
    job.writer.append(group.records, {key_id: replace(material, header=b"header?")})


def no_content(job: Job, group: Group) -> None:
    written(job, group, sealed=None)


def odd_header(job: Job, group: Group) -> None:
    written(job, group, header=b"header?")


def no_scope(job: Job, group: Group) -> None:
    write_grants(job.grants, Grants({}))
    written(job, group)


def another_epoch(job: Job, group: Group) -> None:
    write_grants(job.grants, job.overlay.held({KeyName("plant/#", 7, 0)}))
    written(job, group)


@pytest.mark.parametrize(
    ("damage", "reason"),
    [(no_key, "key: the spool holds no key header"), (another_key, "key: its header belongs to another key"),
     (one_share, "shares: "), (odd_shares, "frame: "), (odd_key_header, "frame: "),
     (no_content, "content: the spool holds none"), (odd_header, "frame: "), (no_scope, "grant: "),
     (another_epoch, "grant: the grants file has no key for scope plant/#, epoch 0, bump 0")],
    ids=lambda value: getattr(value, "__name__", ""),
)  # fmt: skip
def test_what_is_wrong_on_disk_is_a_reason(job: Job, damage: Callable[[Job, Group], None], reason: str) -> None:
    damage(job, group_of(job))
    assert not job.rows(failOnDataLoss="false")
    (row,) = job.rows("quarantine")
    assert row["reason"].startswith(reason)
    assert row["wire_topic"] == "veilmq/batch/1"


@pytest.mark.attack(42)
def test_who_seals_under_the_data_key_of_somebody_else_is_not_opened(job: Job) -> None:
    """Attack: a member that reads a scope names another publisher's key, which executors look up by its id alone."""
    job.publish(job.publisher.seal("plant/1"))
    evil = Publisher(job.overlay, "evil")
    evil.keys["plant/#"] = job.publisher.keys["plant/#"]
    job.publish(evil.seal("plant/1", sequence=9), with_key=False)
    job.link.collector.do_due_work(NOW + 10)
    job.link.write(job.writer)
    assert len(job.rows()) == 1
    (row,) = job.rows("quarantine")
    assert row["reason"] == "key: it belongs to another publisher, scope or tree of regions"


def test_content_of_another_form_is_a_reason(tmp_path: Path) -> None:
    """Sealed by its publisher and opened, but no content: nobody in between can make that, a publisher can."""
    overlay = Overlay()
    overlay.change(keyed=False, mode=Mode.PLAIN)
    job = Job(tmp_path, overlay)
    for content in (b"", b"junk", b"\x01\x05\x00"):
        written(job, group_of(job), sealed=content)
    assert not job.rows()
    assert all(row["reason"].startswith(("frame", "content")) for row in job.rows("quarantine"))
    assert len(job.rows("quarantine")) == 3


def test_a_time_that_no_row_can_show_is_a_reason(job: Job) -> None:
    job.publish(job.publisher.seal("plant/a", time=3e11, time_ms=int(NOW * 1000)))
    assert not job.rows()
    assert [row["reason"] for row in job.rows("quarantine")] == [
        "content: a record on a topic that its publisher may not use in this scope, or of no time"
    ]


def test_every_publication_is_in_one_stream_and_no_other(job: Job) -> None:
    state = b'{"state": "online"}'
    job.publish(*(job.publisher.seal("plant/a") for _ in range(5)))
    job.publish(job.publisher.seal("entities/gw/pump/availability", state), job.publisher.seal("plant/b"))
    job.publish(job.publisher.seal("entities/gw/pump/availability", b"up and running"))
    job.link.publish(job.publisher.seal("plant/c"), content=b"other")  # no copy fits
    second, third = Publisher(job.overlay, "gw2"), Publisher(job.overlay, "gw3")
    job.link.publish(second.seal("plant/d"), places=[1])  # one share of two
    job.link.publish(third.seal("plant/e", time=NOW - 3_600))  # could be a replay
    job.publisher.new_key("plant/#", bump=1)
    job.publish(job.publisher.seal("plant/f"))
    job.link.collector.do_due_work(NOW + 10)
    job.link.write(job.writer)
    write_grants(job.grants, job.overlay.held(job.overlay.names(bumps=(0,))))
    streams = {stream: job.rows(stream) for stream in ("telemetry", "availability", "quarantine")}
    found = sorted((row["publisher"], row["sequence"]) for rows in streams.values() for row in rows)
    sent = [(job.publisher, n) for n in range(1, 11)] + [(second, 1), (third, 1)]
    assert found == sorted((publisher.identity.party_id.hex(), n) for publisher, n in sent)
    assert {stream: len(rows) for stream, rows in streams.items()} == {
        "telemetry": 6, "availability": 1, "quarantine": 5
    }  # fmt: skip
    blamed = sorted(row["reason"].partition(":")[0] for row in streams["quarantine"])
    assert blamed == ["content", "content", "grant", "shares", "stale"]


@pytest.mark.parametrize("left", [0, 10, 1_000])
def test_a_segment_that_was_cut_short_ends_the_query_and_hides_nothing(job: Job, left: int) -> None:
    for _ in range(5):
        job.publish(job.publisher.seal("plant/a", bytes(300)))
    path = segment_path(job.root / "main", 1)
    with path.open("r+b") as file:
        file.truncate(left)
    with pytest.raises(SpoolDamaged) as error:
        job.rows()
    assert "\n" not in str(error.value)


def test_no_bit_that_flips_on_disk_crashes_a_worker_or_makes_a_row_vanish(job: Job) -> None:
    """Offsets of an Arrow column that point elsewhere are followed, if nobody looks at them before."""
    job.publish(*(job.publisher.seal(f"plant/{number % 3}", bytes(50)) for number in range(20)))
    path = segment_path(job.root / "main", 1)
    whole = path.read_bytes()
    first = whole.index(b"wire_topic") + 2_000  # behind the schema
    random, refused, unreadable, left_out = Random(7), 0, 0, 0

    def rows(stream: str, **options: str) -> int:
        return sum(each.num_rows for each in job.batches(stream, **options))

    for _ in range(60):
        data = bytearray(whole)
        data[random.randrange(first, len(data))] ^= 1 << random.randrange(8)
        path.write_bytes(data)
        try:
            left_out += rows("telemetry") < 20
        except SpoolDamaged:
            refused += 1
        try:
            set_apart = rows("quarantine")
        except SpoolDamaged:
            unreadable += 1
        else:
            assert set_apart + rows("telemetry", failOnDataLoss="false") == 20
    assert 0 < unreadable < 30 < refused
    assert not left_out, "the query fails"


def test_a_row_that_was_changed_on_disk_fails_the_query_and_its_segment_is_not_packed(tmp_path: Path) -> None:
    """It was acknowledged, so its publisher does not send it again; the disk it came from may still have it."""
    job = filled(tmp_path)
    before = job.rows()
    path = segment_path(job.root / "main", 1)
    content = bytearray(path.read_bytes())
    sealed = next(read_groups(ByteRange(str(path), 0, len(content), 0))).column("sealed")[0].as_py()
    content[content.index(sealed) + 20] ^= 1
    path.write_bytes(content)
    with pytest.raises(SpoolDamaged, match=r"changed on disk.*failOnDataLoss=false") as error:
        job.rows()
    assert "\n" not in str(error.value)
    packed = [each.told for each in job.pack()]
    assert [("not packed" in told, "changed on disk" in told) for told in packed] == [(True, True)]
    assert len(job.rows(failOnDataLoss="false")) == len(before) - 1
    assert [row["reason"].split(":")[0] for row in job.rows("quarantine")].count("content") == 5  # four are odd records
