"""Names of keys that rows need: the same for all who read the rows, and missing only if no key of a name opens."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from keys.envelope import KeyName
from spark_ingest.opening.held import KeyNames
from spark_ingest.secrets.grants import Grants
from spark_ingest.secrets.sharebox import ShareBox
from spark_ingest.spool.view import SpoolView, groups_of
from spark_ingest.spool.writer import SpooledKey
from tests.spark_ingest.opening.test_rows import Job

NAMES = [f"scope plant/#, epoch 0, bump {bump}" for bump in (0, 1)]


@pytest.fixture
def job(tmp_path: Path) -> Job:
    """Two rows under each of two epoch keys."""
    job = Job(tmp_path)
    for bump in (0, 1):
        for _ in range(2):
            job.publisher.new_key("plant/#", bump=bump)
            job.publish(job.publisher.seal("plant/a"))
    return job


def groups(job: Job) -> list[Any]:
    view = SpoolView(job.root)
    return list(groups_of(view.ranges({}, view.latest(), 1), True))


def held(job: Job, *bumps: int) -> Grants:
    return job.overlay.held({KeyName("plant/#", 0, bump) for bump in bumps})


def test_rows_are_found_by_the_name_of_their_key(job: Job) -> None:
    found = [KeyNames().rows_needing(group, [NAMES[1]]).tolist() for group in groups(job)]
    assert found == [[False], [False], [True], [True]]
    assert [KeyNames().rows_needing(group, NAMES).tolist() for group in groups(job)] == [[True]] * 4


def test_what_is_missing_is_what_the_file_lacks_or_has_otherwise(job: Job) -> None:
    names = KeyNames()
    assert names.missing(groups(job), held(job, 0, 1)) == []
    assert names.missing(groups(job), held(job, 0)) == NAMES[1:]
    assert names.missing(groups(job), Grants({})) == NAMES
    scope = held(job, 0, 1).scopes["plant/#"]
    other = replace(scope, keys={**scope.keys, KeyName("plant/#", 0, 1): bytes(31) + b"x"})
    assert names.missing(groups(job), Grants({"plant/#": other})) == NAMES[1:]


def test_shares_under_a_local_key_are_named_by_it() -> None:
    sealed = ShareBox(bytes(32), bytes).seal(SpooledKey(b"header?", b"shares"))
    assert KeyNames().name_of(b"header?", sealed.shares) is None, "no header, so nobody waits"


def test_a_missing_local_key_is_missing(tmp_path: Path) -> None:
    job = Job(tmp_path)
    box = ShareBox(bytes(range(32)), bytes)
    job.link.publish(job.publisher.seal("plant/a"))
    (group,) = job.link.write()
    job.writer.append(group.records, box.seal_all(group.keys))
    (name,) = KeyNames().missing(groups(job), held(job, 0))
    assert name.startswith(f"{NAMES[0]}, local key ")
    assert KeyNames().missing(groups(job), replace(held(job, 0), spool_keys=(bytes(range(32)),))) == []
