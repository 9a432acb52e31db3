"""What bridges that are configured no more left on disk, and that it can be taken away."""

from __future__ import annotations

from pathlib import Path

import pytest

from gateway.cli import run
from gateway.data import StoreError
from gateway.sessions import SessionDatabase, forget_bridge, waiting_for_bridges
from tests.gateway.harness import Wire, on_loop, serving


@on_loop
async def leave(data: Path) -> None:
    """A broker with sessions of two bridges, of which one has two messages."""
    async with serving({"data": str(data)}) as broker:
        for name in ("$veilmq/bridge/old", "$veilmq/bridge/now", "device"):
            client = broker.lifecycle.create_offline(name)
            client.session.session_expiry_s = 0xFFFF_FFFF
            broker.exchange.store.note_opened(client)  # type: ignore[union-attr]
        old = await Wire.connect(broker, "device", clean_start=False, properties={"session_expiry_s": 60})
        await old.subscribe("t", 1)
        old.cut()
        old_client, device = broker.lifecycle.clients["$veilmq/bridge/old"], broker.lifecycle.clients["device"]
        for subscription in device.filters.values():
            broker.exchange.delivery.router.subscribe(old_client, subscription.options)
        writer = await Wire.connect(broker)
        for number in range(2):
            writer.publish("t", b"%d" % number, 1)
        await writer.barrier()


def test_a_bridge_that_went_is_told_and_forgotten_and_others_stay(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data, config = tmp_path / "data", tmp_path / "broker.yaml"
    leave(data)
    assert waiting_for_bridges(data) == {"old": 2, "now": 0}
    topics = "bridges: {now: {addresses: ['127.0.0.1:9'], topics: [{filter: t}]}}"
    config.write_text(f"data: {data}\nlisteners: {{default: {{bind: '127.0.0.1:0'}}}}\n{topics}\n")
    run(["check", "-c", str(config)])
    said = capsys.readouterr().out
    assert "bridge old is configured no more" in said
    assert "2 messages" in said
    assert "bridge now" not in said
    assert run(["bridges", "list", "-c", str(config)]) == 0
    assert "not configured" in capsys.readouterr().out
    assert run(["bridges", "forget", "now", "-c", str(config)]) == 2
    assert run(["bridges", "forget", "old", "-c", str(config)]) == 0
    assert "2 messages" in capsys.readouterr().out
    assert waiting_for_bridges(data) == {"now": 0}
    database = SessionDatabase(data)
    content = database.load()
    assert [row[1] for row in content.sessions] == ["$veilmq/bridge/now", "device"]
    assert len(content.deliveries) == 1
    with pytest.raises(StoreError):  # in use
        forget_bridge(data, "now")
    database.close()
    with pytest.raises(StoreError, match="those that have: now"):
        forget_bridge(data, "old")


def test_without_a_database_there_is_nothing(tmp_path: Path) -> None:
    assert waiting_for_bridges(tmp_path) == {}
