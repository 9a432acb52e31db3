"""What the demonstration shows at its end: a sample as a replica saw it, and Spark's rows."""

from __future__ import annotations

import sqlite3
from dataclasses import replace
from pathlib import Path

import pytest

from bridge.contract.machine import Received
from gateway.demo.play import find_sample, read_sink
from gateway.demo.report import (
    ReportRow,
)
from gateway.demo.setup import DemoError
from keys.envelope import PROPERTY_SHARES
from keys.identity import Identity
from papers.liar import Liar
from spark_ingest.writing.sink import PublicationSink
from tests.gateway.demo.test_report import GOOD, by_id, sent, shown
from tests.papers.test_liar import Forwarder, _wire


def test_what_a_replica_saw_is_shown_beside_what_was_sent(tmp_path: Path) -> None:
    publisher = Identity.generate(b"p" * 32)
    liar = Liar(Forwarder(), 1, tmp_path / "saw.jsonl")
    liar.lying = True
    for sequence in (1, 2, 3):
        liar.handle(Received("site", _wire(publisher, sequence, shares=sequence == 3)), 0.0)
    messages = by_id(sent("m2"), replace(sent("m3"), payload='{"id": "m3", "sensor": "[odd]"}'))
    rows = [ReportRow(publisher.party_id.hex(), n, f"m{n}", "t", "d") for n in (2, 3)]
    path = tmp_path / "saw.jsonl"
    assert find_sample("r1a", path, [], messages) is None
    first = find_sample("r1a", path, rows[:1], messages)
    assert first is not None
    assert (first.clear_topic, PROPERTY_SHARES in dict(first.properties)) == (messages["m2"].topic, False)
    sample = find_sample("r1a", path, rows, messages)
    assert sample is not None
    assert (sample.clear_payload, sample.content) == (messages["m3"].payload, b"sealed content")
    text = shown(replace(GOOD, sample=sample))
    assert "[odd]" in text
    assert sample.content.hex() in text.replace("\n", "")


def test_the_sink_is_read_as_spark_wrote_it(tmp_path: Path) -> None:
    with pytest.raises(DemoError, match="Spark wrote no sink"):
        list(read_sink(tmp_path / "sink.sqlite"))
    PublicationSink(tmp_path / "sink.sqlite", id_field="id")
    database = sqlite3.connect(tmp_path / "sink.sqlite")
    database.execute(
        "INSERT INTO publications (batch, publisher, sequence, topic, digest) VALUES (0, 'p', 7, 't', 'd')"
    )
    database.commit()
    database.close()
    assert list(read_sink(tmp_path / "sink.sqlite")) == [ReportRow("p", 7, "", "t", "d")]
