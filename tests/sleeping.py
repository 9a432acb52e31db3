"""Where tests let real time pass, how often at most, and why nothing else would do there.

Everywhere else time is passed in, or a condition is waited for (`waits`). A turn of the event loop, `asyncio.sleep(0)`,
is no time, and benches measure it.
"""

from __future__ import annotations

PACE = "the pace of a load, or the moment of a fault in it"
ANOTHER = "another process is asked until it answers, which nothing tells"
ABSENCE = "what must not come has time to, between real processes and threads that no later message orders"
CLOCK = "the clock is a library's or another process's own"
PART = "part of what is tested: a slow plugin, a page that drips, a process that works until it is killed"

SLEEPS: dict[str, tuple[int, str]] = {
    "tests/first_minutes.py": (2, ANOTHER),
    "tests/gateway/across.py": (2, ABSENCE),
    "tests/gateway/auth/test_provider_fetch.py": (2, PACE),
    "tests/gateway/bridging/test_crossing.py": (1, ABSENCE),
    "tests/gateway/bridging/test_ends.py": (2, PACE),
    "tests/gateway/sockets/test_write_room.py": (1, ABSENCE),
    "tests/gateway/clients/test_bounds.py": (1, PART),
    "tests/gateway/clients/test_record.py": (1, CLOCK),
    "tests/gateway/importing/test_mosquitto_db.py": (1, ANOTHER),
    "tests/gateway/outbox/test_bundling.py": (1, ABSENCE),
    "tests/gateway/outbox/test_outgoing.py": (1, ANOTHER),
    "tests/gateway/overlay/test_wires.py": (1, ABSENCE),
    "tests/gateway/plugins/test_host.py": (1, PART),
    "tests/gateway/slow_links.py": (1, PACE),
    "tests/gateway/steady_load.py": (3, PACE),
    "tests/gateway/test_broker_overlay.py": (2, ABSENCE),
    "tests/gateway/test_durability.py": (4, PACE),
    "tests/gateway/test_first_minutes.py": (1, ANOTHER),
    "tests/gateway/test_hours_away.py": (2, ABSENCE),
    "tests/gateway/test_key_service.py": (3, PACE),
    "tests/gateway/test_partitions.py": (1, PACE),
    "tests/gateway/test_planes.py": (1, PACE),
    "tests/gateway/test_reader_restarts.py": (6, PACE),
    "tests/gateway/test_region.py": (2, PACE),
    "tests/gateway/test_shared_groups.py": (2, PACE),
    "tests/gateway/test_trace_reports.py": (1, ANOTHER),
    "tests/gateway/tracing/test_other_witnesses.py": (1, ANOTHER),
    "tests/gateway/trust/test_live_overlay.py": (1, ABSENCE),
    "tests/interop/publisher.py": (2, PACE),
    "tests/interop/test_bridge_pairs.py": (1, ABSENCE),
    "tests/interop/test_clients.py": (2, CLOCK),
    "tests/interop/test_hosted_brokers.py": (4, ABSENCE),
    "tests/mutation/running.py": (1, ANOTHER),
    "tests/peers/programs/device.py": (1, ANOTHER),
    "tests/peers/programs/exchange.py": (5, ANOTHER),
    "tests/serve_wheel.py": (1, ANOTHER),
    "tests/spark_ingest/dashboard/test_feed.py": (1, PART),
    "tests/spark_ingest/receiver/test_clock.py": (1, CLOCK),
    "tests/spark_ingest/receiver/test_receiver.py": (1, ABSENCE),
    "tests/spark_ingest/replayed.py": (1, PACE),
    "tests/spark_ingest/test_crashes.py": (2, PACE),
    "tests/spark_ingest/test_month.py": (1, ABSENCE),
    "tests/spark_ingest/test_write_spark.py": (1, ANOTHER),
    "tests/waits.py": (2, ANOTHER),
}
"""By file: how many calls at most, and why; where several reasons hold, that of most of them."""
