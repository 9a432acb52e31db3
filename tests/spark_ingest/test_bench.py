"""What the benches of rows and receivers make is what the library reads: a change that breaks them shows here."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from spark_ingest.opening.rows import RowReader
from spark_ingest.options import parse_options
from spark_ingest.packing import pack
from spark_ingest.spool.view import SpoolView
from tests.bench import receiving, spools


@pytest.mark.parametrize("records", [1, 4])
def test_a_receiver_makes_a_row_of_all_that_the_bench_sends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, records: int
) -> None:
    """`measure` itself looks at rows and acknowledgements."""
    none = SimpleNamespace(collect=int, freeze=int, set_threshold=lambda *_: None)
    monkeypatch.setattr(receiving, "gc", none)  # this process goes on with other tests
    overlay = receiving.Steady()
    wires = receiving.premade(receiving.GATEWAYS, overlay, records)
    figures = receiving.measure(overlay, wires, tmp_path)
    assert figures.publications == receiving.GATEWAYS * receiving.TOGETHER


@pytest.mark.parametrize(("messages_a_key", "batch"), [(1, 1), (64, 1), (1024, 64)])
def test_every_row_of_a_spool_of_the_bench_opens(tmp_path: Path, messages_a_key: int, batch: int) -> None:
    """As it is, and packed."""
    keys, spool = spools.grants(tmp_path / "keys.json"), tmp_path / "spool"
    spools.fill(spool, 640, messages_a_key, batch, segment_bytes=20_000)
    options = parse_options({"spool": str(spool), "grants": str(keys)})

    def payloads() -> list[bytes]:
        view, reader = SpoolView(spool), RowReader(options)
        read = [each for extent in view.ranges({}, view.latest(), 1) for each in reader.read(extent)]
        return [payload for each in read for payload in each.column("payload").to_pylist()]

    before = payloads()
    assert sorted(before) == sorted(spools.reading(number)[1] for number in range(640))
    assert list(pack(spool, keys, None, None))
    assert payloads() == before
