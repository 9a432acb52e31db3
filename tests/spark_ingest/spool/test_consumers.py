"""Named consumers: where a new one starts, what stays for how long, how far behind each is, who may be forgotten."""

from __future__ import annotations

import json
import os
import subprocess
import time
from pathlib import Path

import pytest

from spark_ingest.errors import BadOption, SpoolBusy, SpoolDamaged
from spark_ingest.spool.consumers import Consumer, ConsumerPlace, forget, make_room, place_of, read_place
from spark_ingest.spool.segments import CONSUMERS, RECEIVER_NAME, positions_of, segment_numbers, segment_path
from spark_ingest.spool.view import SpoolView
from tests.gateway.overlay_processes import run_veilmq
from tests.spark_ingest.spool.test_segments import fill, opened, sequences_in


def cli(*arguments: str) -> subprocess.CompletedProcess[str]:
    return run_veilmq("ingest", "consumers", *arguments)


def made(root: Path, rows: int = 400) -> SpoolView:
    """Segments of 50 rows each."""
    fill(opened(root, segment=10_000), range(rows))
    return SpoolView(root)


def age(root: Path, number: int, seconds: float) -> None:
    at = time.time() - seconds
    os.utime(segment_path(root / "main", number), (at, at))


def test_a_new_consumer_may_start_at_the_end_and_is_protected_from_there(tmp_path: Path) -> None:
    view = made(tmp_path)
    late, early = Consumer(tmp_path, "late", view), Consumer(tmp_path, "early", view)
    begin = late.register(from_latest=True)
    assert begin == view.latest()
    assert early.register() == view.earliest()
    assert sequences_in(view, begin, view.latest()) == []
    assert early.commit(view.latest()) > 0, "the late one needs nothing of what was there before it"


def test_one_far_behind_keeps_its_rows_and_loses_none(tmp_path: Path) -> None:
    """Two queries at very different speed, over many commits of the fast one."""
    writer = opened(tmp_path, segment=10_000)
    view = SpoolView(tmp_path)
    fast, slow = Consumer(tmp_path, "fast", view), Consumer(tmp_path, "slow", view)
    at = fast.register()
    behind = slow.register()
    for first in range(0, 1_000, 100):
        fill(writer, range(first, first + 100))
        at = view.advance(at)
        fast.commit(at)
    assert sequences_in(view, behind, at) == list(range(1_000))
    behind = view.advance(behind, 300)
    slow.commit(behind)
    assert segment_numbers(tmp_path / "main")[0] > 1
    assert sequences_in(view, behind, at) == list(range(300, 1_000))


def test_what_was_read_stays_for_the_longest_wish(tmp_path: Path) -> None:
    view = made(tmp_path)
    last = segment_numbers(tmp_path / "main")[-1]
    for number in range(1, last + 1):
        age(tmp_path, number, 3_600 - 100 * number)
    brief, long = Consumer(tmp_path, "brief", view), Consumer(tmp_path, "long", view, retain_s=3_350)
    brief.register()
    long.register()
    long.commit(view.latest())
    assert brief.commit(view.latest()) == 2, "those of 3,500 and 3,400 s ago"
    assert sequences_in(view, view.earliest(), view.latest())[-1] == 399


def test_a_full_spool_heeds_no_wish_but_keeps_what_is_unread(tmp_path: Path) -> None:
    """Without it, retention would stop the receiver for good: nothing new, so no commit, so no trimming."""
    view = made(tmp_path)
    reader, slow = Consumer(tmp_path, "reader", view, retain_s=1e6), Consumer(tmp_path, "slow", view)
    start = reader.register()
    slow.register()
    reader.commit(view.latest())
    assert make_room(tmp_path) == 0
    middle = view.advance(start, 200)
    slow.commit(middle)
    assert segment_numbers(tmp_path / "main")[0] == 1
    assert make_room(tmp_path) > 0
    assert sequences_in(view, middle, view.latest()) == list(range(200, 400))


def test_a_strange_file_is_told_and_not_taken_for_a_position(tmp_path: Path) -> None:
    path = tmp_path / "job.json"
    for text in ("", "[]", "{}", '{"position": 3, "retain_s": 0}', '{"position": {"main": {}}, "retain_s": 0}'):
        path.write_text(text)
        with pytest.raises(SpoolDamaged, match="remove it"):
            read_place(path)


def test_a_position_that_an_earlier_version_wrote_still_holds(tmp_path: Path) -> None:
    view = made(tmp_path, 100)
    at = view.advance(view.earliest(), 30)
    Consumer(tmp_path, "job", view).register()
    path = tmp_path / "consumers" / "job.json"
    path.write_text(json.dumps(at))
    assert read_place(path) == ConsumerPlace(positions_of(at), 0.0)


def test_a_running_consumer_is_not_forgotten_and_a_path_is_no_name(tmp_path: Path) -> None:
    view = made(tmp_path, 50)
    consumer = Consumer(tmp_path, "job", view)
    consumer.attach()
    consumer.register()
    with pytest.raises(SpoolBusy, match="is running"):
        forget(tmp_path, "job")
    consumer.detach()
    outside = tmp_path / "outside.json"
    outside.write_text("{}")
    with pytest.raises(BadOption, match="not a name"):
        forget(tmp_path, "../outside")
    assert outside.exists()
    assert forget(tmp_path, "job")


def test_the_command_lists_and_forgets(tmp_path: Path) -> None:
    view = made(tmp_path, 100)
    Consumer(tmp_path, "job", view).register()
    listed = cli(str(tmp_path))
    assert listed.returncode == 0, listed.stderr
    assert "job" in listed.stdout
    assert "100" in listed.stdout
    (line,) = cli(str(tmp_path), "--json").stdout.splitlines()
    told = json.loads(line)
    assert (told["name"], told["behind"]["sealed_batches"], told["running"]) == ("job", 100, False)
    unknown = cli(str(tmp_path), "--forget", "jib")
    assert (unknown.returncode, unknown.stderr.count("\n")) == (2, 1)
    assert "known: job" in unknown.stderr
    assert cli(str(tmp_path), "--forget", "job").returncode == 0
    assert cli(str(tmp_path)).stdout == "no query has read this spool\n"
    assert cli(str(tmp_path / "none")).returncode == 2


def test_the_place_of_a_query_without_a_name_goes_once_it_was_unused_for_long(tmp_path: Path) -> None:
    view = made(tmp_path)
    named, unnamed = Consumer(tmp_path, "named", view), Consumer(tmp_path, "rows.ab", view, keep_s=60)
    unnamed.attach()
    for each in (named, unnamed):
        each.needs(view.earliest(), "token", claim=True)
    path = tmp_path / CONSUMERS / "rows.ab.json"
    os.utime(path, (1, 1))
    assert named.commit(view.latest()) == 0, "its query runs, and has read nothing"
    unnamed.detach()
    assert named.commit(view.latest()) > 0
    assert not path.exists()
    assert (tmp_path / CONSUMERS / "named.json").exists()


def test_queries_without_a_name_have_a_place_for_each_checkpoint() -> None:
    assert place_of("telemetry", "a" * 16) == place_of("telemetry", "a" * 16) != place_of("telemetry", "b" * 16)
    assert RECEIVER_NAME.fullmatch(place_of("availability-10of12", "0123456789abcdef"))
