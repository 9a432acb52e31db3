"""The plan by which test files run names what it must."""

from __future__ import annotations

import pytest

from tests.spreading import LONGEST, ROOT, is_quick, rank, turn


def test_what_uses_spark_is_one_group_and_what_starts_processes_comes_before_the_rest() -> None:
    assert rank("tests/spark_ingest/source/test_source.py") == rank("tests/spark_ingest/test_functions.py") == 0
    assert rank("tests/gateway/test_attach_detach.py") == 1
    assert rank("tests/papers/overlays/test_self_organisation.py") == 1, "its slow tests take longest"
    assert rank("tests/keys/test_issuing.py") == 2


def test_every_file_of_tests_has_a_rank() -> None:
    ranks = [rank(path.relative_to(ROOT).as_posix()) for path in (ROOT / "tests").rglob("test_*.py")]
    assert set(ranks) == {0, 1, 2}
    assert ranks.count(0) < ranks.count(1) < ranks.count(2)


def test_tests_are_collected_in_that_order(request: pytest.FixtureRequest) -> None:
    turns = [turn(item.path.relative_to(ROOT).as_posix()) for item in request.session.items]
    assert turns == sorted(turns)


def test_the_longest_come_between_spark_and_all_others() -> None:
    assert turn("tests/spark_ingest/test_functions.py") < turn(LONGEST[0]) < turn(LONGEST[-1])
    assert turn(LONGEST[-1]) < turn("tests/gateway/test_durability.py") < turn("tests/keys/test_issuing.py")
    assert not [path for path in LONGEST if not (ROOT / path).is_file() or rank(path) == 0]


def test_quick_tests_start_nothing_and_are_of_one_room() -> None:
    assert is_quick("tests/keys/test_issuing.py")
    assert is_quick("tests/gateway/base/test_alarm.py")
    assert not is_quick("tests/gateway/test_slow_receivers.py"), "several rooms"
    assert not is_quick("tests/gateway/bridging/test_ends.py"), "starts processes"
    assert not is_quick("tests/gateway/trust/test_tokens.py"), "runs programs to their end"
    assert not is_quick("tests/gateway/console/test_streams.py"), "its console is a process"
    assert not is_quick("tests/spark_ingest/receiver/test_workers.py"), "its workers are processes"
    assert not is_quick("tests/papers/overlays/test_optimum.py"), "an experiment"
    assert not is_quick("tests/bridge/test_copies.py"), "several rooms"
    assert not is_quick("tests/sim/test_storms.py")
