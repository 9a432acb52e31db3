"""What a `mosquitto.db` holds becomes sessions and retained messages of ours, or a note."""

from __future__ import annotations

from pathlib import Path

import pytest

from gateway.data import StoreError
from gateway.importing.loading import load_db
from tests.gateway.importing.test_mosquitto_db import (
    DAY_S,
    WHOLE,
    client,
    file,
    message,
    queued,
    retained,
)

NOW = 1_800_000_000.0


def test_what_expired_or_is_handed_over_already_is_left_and_what_is_half_received_is_said(tmp_path: Path) -> None:
    data = file(
        message(1, "a", b"old", expires=int(NOW) - 1), message(2, "b", b"good"), message(3, "c#", b"bad name"),
        client("k"), queued(1, "k"), queued(2, "k", qos=2, state=9), queued(2, "k", direction=0), queued(3, "k"),
        queued(9, "k"), client("gone", expiry_s=5, ends=int(NOW) - 1), client("clean", expiry_s=0), retained(1),
    )  # fmt: skip
    path = tmp_path / "mosquitto.db"
    path.write_bytes(data)
    loaded = load_db(path, tmp_path / "data", NOW, DAY_S)
    assert (loaded.retained, loaded.sessions, loaded.queued) == (0, 1, 0)
    assert len(loaded.notes) == 4
    assert "k has a session without a subscription: a shared one" in loaded.notes[0]
    assert "received by half" in loaded.notes[-1]


def test_a_directory_in_use_is_not_mixed_with(tmp_path: Path) -> None:
    path = tmp_path / "mosquitto.db"
    path.write_bytes(WHOLE)
    load_db(path, tmp_path / "data", NOW, DAY_S)
    with pytest.raises(StoreError, match="holds sessions or retained messages already"):
        load_db(path, tmp_path / "data", NOW, DAY_S)
