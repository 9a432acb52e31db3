"""ReceiverTroubles is told since it began, to the query and beside the spool."""

from __future__ import annotations

from pathlib import Path

import pytest

from spark_ingest.errors import ReceiverTrouble
from spark_ingest.receiver.trouble import STILL_S, ReceiverTroubles
from spark_ingest.spool.trouble import told_trouble


def test_trouble_counts_from_its_first_word_until_all_is_well(tmp_path: Path) -> None:
    now = [0.0]
    trouble = ReceiverTroubles(tmp_path, lambda: now[0])
    trouble.tell_trouble("disk full")
    now[0] = 30
    trouble.began()
    trouble.tell_trouble("disk full still")
    trouble.check_trouble(31)
    now[0] = 31
    with pytest.raises(ReceiverTrouble, match="disk full still"):
        trouble.check_trouble(31)
    trouble.tell_trouble(None)
    trouble.check_trouble(0)
    trouble.tell_trouble("another one receives", bad=False)
    now[0] = 1_000
    trouble.check_trouble(31)


def test_a_receiver_that_stands_still_is_trouble_though_it_says_nothing(tmp_path: Path) -> None:
    """A disk that does not answer ends no call, and so tells of no error."""
    now = [0.0]
    trouble = ReceiverTroubles(tmp_path, lambda: now[0])
    now[0] = 1_000
    trouble.check_trouble(60)  # it has not begun
    trouble.moves()
    now[0] += 60
    with pytest.raises(ReceiverTrouble, match="stood still for 60 s"):
        trouble.check_trouble(60)
    trouble.moves()
    trouble.check_trouble(60)
    now[0] += 5
    trouble.check_trouble(1)  # a busy machine is no trouble yet
    now[0] += STILL_S - 5
    with pytest.raises(ReceiverTrouble, match=f"stood still for {STILL_S:.0f} s"):
        trouble.check_trouble(1)
    trouble.rests()
    trouble.check_trouble(1)  # another session begins, and reads what the spool has


def test_what_a_receiver_said_is_read_beside_its_segments_until_all_is_well(tmp_path: Path) -> None:
    trouble = ReceiverTroubles(tmp_path)
    assert trouble.tell_trouble("disk\nfull")
    assert not trouble.tell_trouble("disk\nfull")
    assert told_trouble(tmp_path) == "disk full"
    ReceiverTroubles(tmp_path).tell_trouble(None)
    assert told_trouble(tmp_path) is None, "what a process left that was killed"
