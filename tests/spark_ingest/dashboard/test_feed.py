"""Where the dashboard's figures come from: looks at a spool, scrapes of endpoints, and what is no answer."""

from __future__ import annotations

import contextlib
import http.server
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from spark_ingest.dashboard.board import (
    BoardSample,
)
from spark_ingest.dashboard.feed import READ_ROWS, SCRAPE_BYTES, Scraper, SpoolFeed, checked_url, scrape
from spark_ingest.errors import BadOption
from spark_ingest.sample.spool import START_S, write_sample
from spark_ingest.spool.consumers import Consumer
from spark_ingest.spool.view import SpoolView

pytest.importorskip("pyarrow")


@pytest.mark.long
def test_looks_at_a_real_spool_and_keeps_nothing_from_being_trimmed(tmp_path: Path) -> None:
    made = write_sample(tmp_path / "sample", rows=6000, devices=8)
    Consumer(made.spool, "archive", SpoolView(made.spool)).register()
    feed = SpoolFeed(made.spool, made.grants)
    look = feed.next_look()
    assert look.trouble == ""
    assert look.sealed_batches == made.telemetry + made.availability + made.quarantine
    assert look.read <= READ_ROWS + 500
    assert look.streams["telemetry"] >= look.read - made.availability - made.quarantine
    assert {each.entity.partition("-")[0] for each in look.heard} == {"press", "pump"}
    assert all(at >= START_S and delay >= 0 for at, delay in look.delays)
    (reader,) = look.readers
    assert (reader.name, reader.running, reader.sealed_batches) == ("archive", False, look.sealed_batches)
    assert look.spool_bytes > 0
    again = feed.next_look()
    assert (again.sealed_batches, again.read, again.streams["telemetry"]) == (0, 0, 0)
    assert not [path for path in (made.spool / "consumers").glob("*.json") if path.stem != "archive"]


def test_trouble_is_a_line_on_the_page_and_goes_again(tmp_path: Path) -> None:
    made = write_sample(tmp_path / "sample", rows=50, devices=2)
    feed = SpoolFeed(made.spool, made.grants)
    made.grants.chmod(0o644)
    look = feed.next_look()
    assert "chmod" in look.trouble or "mode" in look.trouble
    assert "\n" not in look.trouble
    made.grants.chmod(0o600)
    assert feed.next_look().trouble == ""


@pytest.fixture
def endpoint() -> Iterator[tuple[str, dict[str, bytes]]]:
    """A server whose paths answer what the test puts there."""
    pages: dict[str, bytes] = {}

    class Pages(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if self.path == "/moved":
                self.send_response(302)
                self.send_header("Location", "/metrics")
                self.end_headers()
                return
            self.send_response(200 if self.path in pages else 404)
            self.end_headers()
            with contextlib.suppress(OSError):  # until the other side has gone
                while self.path == "/drips":
                    self.wfile.write(b"#")
                    time.sleep(0.02)
            self.wfile.write(pages.get(self.path, b""))

        def log_message(self, *_: object) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Pages)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}", pages
    server.shutdown()
    server.server_close()
    thread.join()


def test_scrapes_and_what_is_no_answer(endpoint: tuple[str, dict[str, bytes]], free_port: int) -> None:
    base, pages = endpoint
    pages["/metrics"] = b'# TYPE veilmq_link_up gauge\nveilmq_link_up{peer="a\\"b",direction="out"} 1\nother 5\n'
    pages["/large"] = b"#" * (SCRAPE_BYTES + 2)
    pages["/html"] = b"<html> {nothing"
    assert scrape(f"{base}/metrics").samples == [
        BoardSample("veilmq_link_up", {"peer": 'a"b', "direction": "out"}, 1.0)
    ]
    assert "MiB" in scrape(f"{base}/large").error
    assert "Prometheus" in scrape(f"{base}/html").error
    assert scrape(f"{base}/absent").error == "answers 404"
    assert scrape(f"{base}/moved").error == "answers 302"
    assert scrape(f"http://127.0.0.1:{free_port}/").error
    scraper = Scraper([base, f"{base}/html"])
    assert [bool(each.error) for each in scraper.scrape()] == [False, True]
    scraper.close()


def test_an_endpoint_that_drips_holds_up_no_look(
    endpoint: tuple[str, dict[str, bytes]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("spark_ingest.dashboard.feed.SCRAPE_S", 0.1)
    base, pages = endpoint
    pages["/drips"] = b""
    assert scrape(f"{base}/drips").error == "answers too slowly"


@pytest.mark.parametrize("url", ["file:///etc/passwd", "ftp://h/", "http://", "http://u:p@h/", "http://h:99999/", ""])
def test_urls_that_are_no_endpoint(url: str) -> None:
    with pytest.raises(BadOption):
        checked_url(url)


def test_urls_that_are() -> None:
    assert checked_url("127.0.0.1:9464") == "http://127.0.0.1:9464/metrics"
    assert checked_url("https://h/x/metrics") == "https://h/x/metrics"
