"""The soft limit of open files is raised, and connections are sized by it."""

from __future__ import annotations

import resource

import pytest

from gateway.base.descriptors import SPARE_FILES, allowed_files, open_files, raise_limit
from gateway.mqtt5.packets import ConnAck
from tests.gateway.harness import Wire, on_loop, serving


def test_the_soft_limit_becomes_the_hard_one(monkeypatch: pytest.MonkeyPatch) -> None:
    limits = [(1_024, 4_096)]
    monkeypatch.setattr(resource, "getrlimit", lambda _: limits[-1])
    monkeypatch.setattr(resource, "setrlimit", lambda _, pair: limits.append(pair))
    assert allowed_files() == 4_096
    assert raise_limit() == 4_096
    assert limits[-1] == (4_096, 4_096)


def test_a_limit_that_cannot_be_raised_is_told_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise ValueError("not allowed")

    monkeypatch.setattr(resource, "getrlimit", lambda _: (1_024, 4_096))
    monkeypatch.setattr(resource, "setrlimit", refuse)
    assert raise_limit() == 1_024


def test_open_files_are_counted() -> None:
    assert open_files() > 2


@on_loop
async def test_no_more_connections_than_files_and_the_log_says_so(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("gateway.broker.edge_broker.raise_limit", lambda: SPARE_FILES + 2)
    async with serving() as broker:
        (record,) = [one for one in caplog.records if one.message == "fewer connections than configured"]
        assert vars(record)["most"] == 2
        for name in ("a", "b"):
            wire = await Wire.connect(broker, name)
            assert isinstance(wire.connack, ConnAck)
        assert await (await Wire.open(broker)).closed() == []
        assert broker.operation.observe().reached["connections"] == 1


@on_loop
async def test_that_files_run_out_is_said(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr("gateway.broker.edge_broker.SWEEP_S", 0.001)
    monkeypatch.setattr("gateway.broker.edge_broker.raise_limit", lambda: 20_000)
    monkeypatch.setattr("gateway.broker.edge_broker.open_files", lambda: 19_990)
    from tests.waits import until

    async with serving():
        await until(lambda: "open files run out" in caplog.text)
