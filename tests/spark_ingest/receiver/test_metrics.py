"""A receiver's endpoint: how it stands, what it counted, and a spool that is trimmed while it is looked at."""

from __future__ import annotations

import socket
import urllib.request
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from spark_ingest.errors import BadOption, SpoolError
from spark_ingest.receiver import metrics
from spark_ingest.receiver.metrics import ReceiverMetrics, serve_metrics
from spark_ingest.spool.segments import Size


def receiver(**fields: Any) -> Any:
    links = (SimpleNamespace(replica="r1", pieces=7, bytes=700, up=True),
             SimpleNamespace(replica="r2", pieces=0, bytes=0, up=False))  # fmt: skip
    progress = SimpleNamespace(
        links=links,
        rows=12,
        bytes=3_400,
        groups=2,
        fsync_s=0.5,
        waiting=3,
        accepted=True,
        full=False,
        clock_off=False,
        reads_back=False,
    )
    told = {"progress": progress, "figures": Counter({("suspected", "r2"): 4}), "alive": True, "trouble": None}
    return SimpleNamespace(**(told | fields))


def shown(tmp_path: Path, **fields: Any) -> dict[tuple[str, tuple[str, ...]], float]:
    collector = ReceiverMetrics(receiver(**fields), tmp_path, ["main"], 1_000)
    return {
        (sample.name.removeprefix("veilmq_ingest_"), tuple(sample.labels.values())): sample.value
        for metric in collector.collect()
        for sample in metric.samples
    }


def test_how_it_stands(tmp_path: Path) -> None:
    found = shown(tmp_path)
    assert found["received_total", ("r1",)] == 7
    assert found["received_bytes_total", ("r1",)] == 700
    assert (found["link_up", ("r1",)], found["link_up", ("r2",)]) == (1, 0)
    assert (found["sealed_batches_total", ()], found["written_bytes_total", ()], found["groups_total", ()]) == (
        12,
        3_400,
        2,
    )
    assert (found["fsync_seconds_count", ()], found["fsync_seconds_sum", ()]) == (2, 0.5)
    assert found["events_total", ("suspected", "r2")] == 4
    assert (found["waiting_sealed_batches", ()], found["subscribed", ()], found["spool_full", ()]) == (3, 1, 0)
    assert found["clock_off", ()] == 0
    assert (found["spool_bytes", ()], found["spool_cap_bytes", ()]) == (0, 1_000)


@pytest.mark.parametrize(("fields", "value"), [({}, 1), ({"alive": False}, 0), ({"trouble": "disk full"}, 0)])
def test_trouble_is_not_receiving(tmp_path: Path, fields: dict[str, Any], value: int) -> None:
    assert shown(tmp_path, **fields)["receiving", ()] == value


def test_lags_are_shown_where_they_are_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    windows = SimpleNamespace(name="windows", behind=Size(5, 700), behind_s=2.5)
    new = SimpleNamespace(name="new", behind=None, behind_s=None)
    monkeypatch.setattr(metrics, "standings", lambda *told: [windows, new])
    found = shown(tmp_path)
    assert [found[f"consumer_behind_{unit}", ("windows",)] for unit in ("sealed_batches", "bytes", "seconds")] == [
        5,
        700,
        2.5,
    ]
    assert ("consumer_behind_sealed_batches", ("new",)) not in found


def test_a_spool_that_is_trimmed_meanwhile_costs_only_the_lags(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def trimmed(*told: object) -> Any:
        raise SpoolError("trimmed")

    monkeypatch.setattr(metrics, "standings", trimmed)
    assert shown(tmp_path)["sealed_batches_total", ()] == 12


@pytest.mark.parametrize("address", ["9464", ":9464", "127.0.0.1:", "127.0.0.1:x", "127.0.0.1:0", "127.0.0.1:70000"])
def test_what_is_no_address_is_one_line(tmp_path: Path, address: str) -> None:
    with pytest.raises(BadOption, match="is no HOST:PORT; write"):
        serve_metrics(address, ReceiverMetrics(receiver(), tmp_path, ["main"], 1))


def test_a_port_in_use_is_one_line(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(BadOption, match="choose an address that is free"):
            serve_metrics(address, ReceiverMetrics(receiver(), tmp_path, ["main"], 1))


def test_it_is_served_until_it_is_stopped(tmp_path: Path, free_port: int) -> None:
    stop = serve_metrics(f"127.0.0.1:{free_port}", ReceiverMetrics(receiver(), tmp_path, ["main"], 1))
    with urllib.request.urlopen(f"http://127.0.0.1:{free_port}/metrics", timeout=10) as answer:
        assert b"veilmq_ingest_sealed_batches_total 12.0" in answer.read()
    stop()
    with pytest.raises(OSError, match="refused"):
        urllib.request.urlopen(f"http://127.0.0.1:{free_port}/metrics", timeout=10)
