"""The metrics endpoint: what it shows, and who cannot hold it up."""

from __future__ import annotations

import asyncio
import socket
import time
import urllib.request
from types import SimpleNamespace
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from bridge.contract.machine import Blame, Count
from gateway.base.config import ConfigError, StartError, parse
from gateway.base.figures import Figures
from gateway.clients import overlay_port as hooks
from gateway.operation.prometheus import overlay_metrics
from gateway.overlay.broker_overlay import BrokerOverlay
from gateway.overlay.dials import Dials
from keys.epochs import Calendar
from tests.gateway.harness import Wire, serving

METRICS = {"metrics": {"bind": "127.0.0.1:0"}}


def scraped(port: int) -> dict[tuple[str, str], float]:
    """(name, value of its only label or empty) -> value, through the library's own parser."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5) as answer:
        assert answer.headers["Content-Type"].startswith("text/plain")
        text = answer.read().decode()
    samples = [sample for family in text_string_to_metric_families(text) for sample in family.samples]
    assert all(sample.name.startswith("veilmq_") for sample in samples)
    return {(sample.name, "/".join(sample.labels.values())): sample.value for sample in samples}


class Measured:
    """As much of an overlay as the broker asks when there are no members."""

    def __init__(self) -> None:
        self.figures = Figures("g", "gateway")

    def gauges(self) -> dict[str, int]:
        return {"outbox_depth": 4, "links_up": 2, "links": 3}

    def publish(self, *_: Any) -> bool:
        return False

    def may_subscribe(self, *_: Any) -> bool:
        return True

    def __getattr__(self, name: str) -> Any:
        return lambda *_: None


def test_prometheus_is_shown_broker_process_and_overlay() -> None:
    async def check() -> None:
        overlay = Measured()
        overlay.figures.count_effect(Count("delivered", 7, "plant"))
        overlay.figures.blame(Blame("r2", False, "late"))
        overlay.figures.blame(Blame("r3", True, "two values"))
        async with serving(METRICS, overlay=overlay) as broker:
            wire = await Wire.connect(broker, "c")
            await wire.subscribe("t")
            wire.publish("t", b"12345")
            await wire.barrier()
            assert broker.operation.endpoint is not None
            found = await asyncio.to_thread(scraped, broker.operation.endpoint.port)
            assert found["veilmq_clients_connected", ""] == 1
            assert found["veilmq_publications_received_total", ""] == 1
            assert found["veilmq_publications_sent_bytes_total", ""] == 5
            assert found["veilmq_received_bytes_total", ""] > 20
            assert found["veilmq_subscriptions", ""] == 1
            assert found["veilmq_limit", "connections"] == 10_000
            assert found["veilmq_process_resident_memory_bytes", ""] > 1e6
            assert found["veilmq_overlay_events_total", "delivered/plant"] == 7
            assert found["veilmq_overlay_suspicions_total", "r2"] == 1
            assert found["veilmq_overlay_named", "r3"] == 1
            assert (found["veilmq_overlay_outbox_depth", ""], found["veilmq_overlay_links_up", ""]) == (4, 2)

    asyncio.run(check())


def test_the_overlays_shell_is_one_that_is_shown() -> None:
    nothing: Any = None
    policy = SimpleNamespace(version=3, calendar=Calendar(length_s=10, zero_ms=0))
    keeping: Any = SimpleNamespace(overlay=SimpleNamespace(policy=policy), live=None)
    store: Any = SimpleNamespace(depth=3, held_bytes=500)
    links = BrokerOverlay(nothing, Figures("g", "gateway"), store, keeping, Dials(nothing), clock=lambda: 25.0)
    assert isinstance(links, hooks.Measured)
    overlay = {"links_up": 0, "links": 0, "epoch": 2, "policy_version": 3}
    assert links.gauges() == {"outbox_depth": 3, "outbox_bytes": 500, **overlay}


def test_what_a_peer_names_is_escaped() -> None:
    figures = Figures("g", "gateway")
    figures.count_effect(Count("refused", 1, 'bad"\n} 1'))
    (events, *_) = overlay_metrics(figures, {})
    assert events.samples[0].labels == {"event": "refused", "label": 'bad"\n} 1'}


def test_who_holds_the_metrics_port_open_holds_up_neither_broker_nor_end() -> None:
    async def check() -> None:
        async with serving(METRICS) as broker:
            assert broker.operation.endpoint is not None
            port = broker.operation.endpoint.port
            idle = socket.create_connection(("127.0.0.1", port))
            wire = await Wire.connect(broker)
            await wire.barrier()
            idle.close()
            assert ("veilmq_connections", "") in await asyncio.to_thread(scraped, port)
            idle = socket.create_connection(("127.0.0.1", port))
            await wire.barrier()
            began = time.monotonic()
        assert time.monotonic() - began < 2
        idle.close()

    asyncio.run(check())


def test_a_metrics_port_in_use_is_one_clear_line() -> None:
    async def check() -> None:
        with socket.create_server(("127.0.0.1", 0)) as taken:
            bind = f"127.0.0.1:{taken.getsockname()[1]}"
            with pytest.raises(StartError, match=f"metrics: cannot bind {bind}: the port is in use"):
                async with serving({"metrics": {"bind": bind}}):
                    pass

    asyncio.run(check())


@pytest.mark.parametrize("bind", ["0.0.0.0:9464", "192.0.2.1:9464", ":9464", "127.0.0.1", "127.0.0.1:99999"])
def test_metrics_are_for_loopback_only(bind: str) -> None:
    with pytest.raises(ConfigError, match=r"metrics\.bind: .*loopback"):
        parse({"metrics": {"bind": bind}})
