"""A file of scope keys leaves this machine sealed, or not at all."""

from __future__ import annotations

from pathlib import Path

import pytest

from spark_ingest.errors import GrantsError
from spark_ingest.extents.sealed_keys import sealed_keys
from tests.spark_ingest.region import write_grants


def test_a_sealed_file_is_given_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "keys.json"
    path.write_bytes(b'{"veilmq_grant": 2, "box": "AAAA"}')
    assert sealed_keys(path) == path.read_bytes()


def test_a_file_in_clear_or_none_stays(tmp_path: Path) -> None:
    clear = write_grants(tmp_path / "clear.json")
    for path in (clear, tmp_path / "none"):
        with pytest.raises(GrantsError, match="grants="):
            sealed_keys(path)
    clear.write_bytes(b"[" * 100_000)
    with pytest.raises(GrantsError, match="not sealed"):
        sealed_keys(clear)
