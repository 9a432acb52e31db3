"""A replaced file is noticed once, whatever it was replaced by."""

from __future__ import annotations

import os
from pathlib import Path

from gateway.base.stamps import Stamps
from gateway.files import stamp


def test_each_change_is_seen_once(tmp_path: Path) -> None:
    one, other = tmp_path / "one", tmp_path / "other"
    one.write_text("1")
    stamps = Stamps((one, str(other)))
    assert not stamps.have_changed()
    other.write_text("2")
    assert stamps.have_changed()
    assert not stamps.have_changed()
    other.unlink()
    assert stamps.have_changed()
    assert stamp(other) is None


def test_a_file_of_the_same_size_and_time_put_in_its_place_is_another(tmp_path: Path) -> None:
    one, new = tmp_path / "one", tmp_path / "new"
    for path in (one, new):
        path.write_text("1")
        os.utime(path, (1, 1))
    stamps = Stamps((one,))
    new.replace(one)
    assert stamps.have_changed()
