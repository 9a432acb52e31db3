"""The keeper: rows are written behind the traffic; a disk that refuses is counted, and stops nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from bridge.contract import Count, KeepSealed
from gateway.receipts import ReceiptKeeper
from tests.gateway.harness import on_loop
from tests.waits import until

KEY = bytes(range(32))


@on_loop
async def test_what_was_kept_is_there_after_a_restart(tmp_path: Path) -> None:
    keeper = ReceiptKeeper(tmp_path, lambda: KEY, lambda count: None)
    assert keeper.restored() == []
    assert list(tmp_path.iterdir()) == []  # nothing is made before it is needed
    keeper.keep_row(KeepSealed(1, b"one"))
    keeper.keep_row(KeepSealed(2, b"two"))
    keeper.close()
    assert ReceiptKeeper(tmp_path, lambda: KEY, lambda count: None).restored() == [b"one", b"two"]


@on_loop
async def test_a_disk_that_refuses_is_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.receipts.keeper.WRITE_EVERY_S", 0.0)
    counted: list[Count] = []
    keeper = ReceiptKeeper(tmp_path / "away", lambda: KEY, counted.append)
    keeper.keep_row(KeepSealed(1, b"one"))
    await until(lambda: bool(counted))
    assert counted == [Count("receipts_lost", 1)]
    keeper.close()


@on_loop
async def test_what_the_disk_is_too_slow_for_is_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.receipts.keeper.WAITING_MAX", 2)
    counted: list[Count] = []
    keeper = ReceiptKeeper(tmp_path, lambda: KEY, counted.append)
    for n in range(5):
        keeper.keep_row(KeepSealed(n, b"row"))
    assert counted == [Count("receipts_lost")] * 3
    keeper.close()
