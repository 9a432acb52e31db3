"""What the dashboard shows: figures from looks and scrapes, and the HTML of its cards, without a browser."""

from __future__ import annotations

import contextlib
import http.server
import re
import threading
import time
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path

import pytest

pytest.importorskip("pyarrow")

from prometheus_client import CollectorRegistry, generate_latest

from spark_ingest.dashboard import board as board_module
from spark_ingest.dashboard.board import (
    CELLS_MAX,
    Board,
    BoardReader,
    BoardSample,
    HeardEntity,
    Look,
    Scrape,
    members,
    quantile,
    queries,
)
from spark_ingest.dashboard.feed import READ_ROWS, SCRAPE_BYTES, Scraper, SpoolFeed, checked_url, scrape
from spark_ingest.dashboard.html import TITLES, amount, cards, curve, seconds, size
from spark_ingest.errors import BadOption
from spark_ingest.metrics import QueryMetrics
from spark_ingest.sample.spool import START_S, write_sample
from spark_ingest.spool.consumers import Consumer
from spark_ingest.spool.view import SpoolView
from tests.spark_ingest.test_metrics import QueryTable as Table
from tests.spark_ingest.test_metrics import progress

HOSTILE = '<img src=x onerror="alert(1)">&"\''


# ------------------------------------------------------------------------------------------------------------- model


def test_the_first_look_fills_tables_and_the_second_is_a_rate() -> None:
    board = Board()
    board.look(Look(rows=1000, read=1000, streams={"telemetry": 990, "quarantine": 10}), 100.0)
    assert board.shown().rates["telemetry"] == ()
    assert board.shown().seen == {"telemetry": 990, "availability": 0, "quarantine": 10}
    board.look(Look(rows=400, read=100, streams={"telemetry": 90, "availability": 10}), 102.0)
    shown = board.shown()
    assert shown.rates["telemetry"] == (180.0,), "90 of 100 were read, of 400 in two seconds"
    assert shown.rates["availability"] == (20.0,)
    assert shown.sampled
    board.look(Look(), 104.0)
    assert board.shown().rates["telemetry"] == (180.0, 0.0)
    assert not board.shown().sampled


def test_delays_are_of_the_newest_minute() -> None:
    board = Board()
    board.look(Look(rows=3, read=3, delays=[(10.0, 99.0), (1000.0, 0.5), (1001.0, 0.1)]), 2000.0)
    shown = board.shown()
    assert (shown.p50_s, shown.p99_s, shown.newest_at) == (0.1, 0.5, 1001.0)
    assert Board().shown().p50_s is None


def test_quantiles_are_values_that_were_there() -> None:
    values = [float(value) for value in range(1, 101)]
    assert (quantile(values, 0.5), quantile(values, 0.99), quantile(values, 1.0)) == (50.0, 99.0, 100.0)
    assert quantile([7.0], 0.01) == 7.0
    assert quantile([], 0.5) is None


def test_the_newest_word_about_an_entity_counts_and_trouble_comes_first() -> None:
    board = Board()
    board.look(Look(heard=[HeardEntity("g", "a", "online", 5, None), HeardEntity("g", "b", "offline", 1, None)]), 1.0)
    board.look(Look(heard=[HeardEntity("g", "a", "offline", 4, None), HeardEntity("h", "a", "online", 1, 2.0)]), 2.0)
    shown = board.shown()
    assert [(each.gateway, each.entity, each.state) for each in shown.cells] == [
        ("g", "b", "offline"), ("g", "a", "online"), ("h", "a", "online"),
    ]  # fmt: skip
    assert dict(shown.states) == {"online": 2, "offline": 1}


def test_everything_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(board_module, "ENTITIES_MAX", 1000)
    board = Board()
    for turn in range(3):
        heard = [HeardEntity("g", f"{turn}-{n}", "online", 1, None) for n in range(600)]
        board.look(Look(rows=1, read=1, heard=heard, reasons={f"r{turn}{n}": 1 for n in range(100)}), float(turn))
    for turn in range(500):
        board.look(Look(), 10.0 + turn)
    shown = board.shown()
    assert sum(count for _, count in shown.states) == 1000
    assert len(shown.cells) == CELLS_MAX
    assert len(shown.reasons) == board_module.REASONS_MAX
    assert len(shown.rates["telemetry"]) == board_module.POINTS
    assert "and 600 more" in cards(shown, 0.0)["entities"]


def test_blame_and_queries_from_scrapes() -> None:
    samples = [
        BoardSample("veilmq_ingest_link_up", {"replica": "r1"}, 1),
        BoardSample("veilmq_ingest_link_up", {"replica": "r2"}, 0),
        BoardSample("veilmq_link_up", {"peer": "r2", "direction": "out"}, 1),
        BoardSample("veilmq_link_up", {"peer": "r2", "direction": "in"}, 1),
        BoardSample("veilmq_ingest_received_total", {"replica": "r1"}, 40),
        BoardSample("veilmq_ingest_events_total", {"event": "duplicates", "replica": ""}, 7),
        BoardSample("veilmq_ingest_events_total", {"event": "duplicates", "replica": "r1"}, 7),
        BoardSample("veilmq_ingest_events_total", {"event": "refused_content", "replica": "r2"}, 3),
        BoardSample("veilmq_overlay_suspicions_total", {"member": "r1"}, 2),
        BoardSample("veilmq_overlay_named", {"member": "r3"}, 1),
    ]  # fmt: skip
    found = [(each.name, each.up, each.of, each.wrong, each.suspected, each.named) for each in members(samples)]
    assert found == [("r3", 0, 0, 0, 0, True), ("r2", 1, 2, 3, 0, False), ("r1", 1, 1, 0, 2, False)]
    table = Table()
    table.started("id-of-sink", "sink")
    table.progressed(progress())
    registry = CollectorRegistry()
    registry.register(QueryMetrics(table))
    told = [BoardSample(each.name, each.labels, each.value) for family in registry.collect() for each in family.samples]
    (query,) = queries(told)
    assert (query.name, query.running, query.rows_per_second, query.batch_s, query.lag_rows) == (
        "sink", True, 50.5, 0.25, 8.0,
    )  # fmt: skip
    assert generate_latest(registry)


def test_a_receivers_cap_is_believed_before_the_option() -> None:
    board = Board(cap_bytes=100)
    assert board.shown().cap_bytes == 100
    board.scraped([Scrape("u", [BoardSample("veilmq_ingest_spool_cap_bytes", {}, 70), BoardSample("x", {}, 1)])])
    assert board.shown().cap_bytes == 70


# ------------------------------------------------------------------------------------------------------------- cards


class _Balanced(HTMLParser):
    """Fails on tags that do not match."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert tag != "img", "a name became a tag"
        assert not any(name.startswith("on") for name, _ in attrs)
        self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def full(name: str) -> Board:
    board = Board(cap_bytes=1000)
    for at in (1.0, 3.0, 5.0):
        board.look(
            Look(
                rows=10, read=9, streams={"telemetry": 7, "availability": 1, "quarantine": 1}, delays=[(at, 0.2)],
                heard=[HeardEntity(name, name, name, 1, 1.0)], reasons={name: 1},
                readers=[BoardReader(name, True, 5, 10, 1.0), BoardReader("gone", False, None, None, 1.0)],
                spool_bytes=950, trouble=name,
            ), at,
        )  # fmt: skip
    blame = [
        BoardSample("veilmq_overlay_named", {"member": name}, 1),
        BoardSample("veilmq_query_running", {"query": name}, 1),
    ]
    board.scraped([Scrape(f"http://{name}", blame), Scrape("http://b", error=name)])
    return board


def test_names_from_elsewhere_are_text_and_tags_match() -> None:
    for name in (HOSTILE, "plain"):
        for html in cards(full(name).shown(), 6.0).values():
            parser = _Balanced()
            parser.feed(html)
            assert not parser.open
    for html in cards(Board().shown(), 6.0).values():
        _Balanced().feed(html)


def test_cards_say_in_words_what_colours_say() -> None:
    shown = cards(full("press").shown(), 6.0)
    assert set(shown) == set(TITLES)
    assert "named a liar" in shown["members"]
    assert "before what was trimmed" in shown["consumers"]
    assert 'aria-valuenow="95"' in shown["spool"]
    assert 'role="img" aria-label="Rows a second, five minutes: now 5, at most 5"' in shown["throughput"]
    assert 'scope="col"' in shown["queries"]


def test_every_state_of_a_statement_has_its_kind() -> None:
    from spark_ingest.opening.statements import _STATES

    kinds: dict[str, set[str]] = {"fine": set(), "warn": set(), "bad": set()}
    for state in {"online", "offline", *filter(None, _STATES.values())}:
        board = Board()
        board.look(Look(heard=[HeardEntity("g", "e", state, 1, None)]), 1.0)
        (kind,) = re.findall(r'class="cell (\w+)"', cards(board.shown(), 1.0)["entities"])
        kinds[kind].add(state)
    assert kinds == {
        "fine": {"online", "ready", "alive"},
        "warn": {"initializing", "recovering", "shutdown", "suspected", "silent", "unknown"},
        "bad": {"offline", "failed", "disconnected"},
    }


def test_an_entity_that_was_not_heard_of_for_long_is_not_shown_as_well() -> None:
    board = Board()
    day = board_module.UNHEARD_S
    told = [("old", "online", 1.0), ("fresh", "online", day), ("bad", "offline", 1.0), ("nobody knows", "online", None)]
    board.look(Look(heard=[HeardEntity("g", name, state, 1, None, at) for name, state, at in told]), 2 * day)
    shown = board.shown()
    assert [each.entity for each in shown.cells] == ["bad", "old", "fresh", "nobody knows"]
    drawn = cards(shown, 2 * day)["entities"]
    assert re.findall(r'class="cell (\w+)"', drawn) == ["bad", "warn", "fine", "fine"]
    assert drawn.count("unheard for") == 2


def test_figures_for_people() -> None:
    assert [seconds(each) for each in (0.0123, 1.26, 90, 600, 10_000, 400_000)] == [
        "12 ms", "1.3 s", "90.0 s", "10 min", "3 h", "5 days",
    ]  # fmt: skip
    assert [size(each) for each in (12, 2048, 5 << 30)] == ["12 B", "2.0 KiB", "5.0 GiB"]
    assert amount(None) == "&ndash;"
    assert "nothing yet" in curve([0.0, 0.0], "x")


_LINEAR = {True: lambda c: c / 12.92, False: lambda c: ((c + 0.055) / 1.055) ** 2.4}


def _luminance(colour: str) -> float:
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    red, green, blue = (_LINEAR[part <= 0.04045](part) for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


@pytest.mark.parametrize("theme", [":root", "body.body--dark"])
def test_contrast_of_text_is_at_least_4_5(theme: str) -> None:
    """WCAG 2.2, 1.4.3, for every pair of colours that the sheet puts on each other."""
    css = Path(board_module.__file__).with_name("dashboard.css").read_text()
    (block,) = re.findall(rf"^{re.escape(theme)} {{(.*?)}}", css, re.MULTILINE | re.DOTALL)
    colours = dict(re.findall(r"--([\w-]+): (#\w{6})", block))
    pairs = [(text, ground) for text in ("text", "quiet", "accent", "bad") for ground in ("ground", "card")]
    pairs += [("fine", "fine-ground"), ("warn", "warn-ground"), ("bad", "bad-ground"), ("text", "idle-ground")]
    for text, ground in pairs:
        light, dark = sorted((_luminance(colours[text]), _luminance(colours[ground])), reverse=True)
        assert (light + 0.05) / (dark + 0.05) >= 4.5, (theme, text, ground)


# -------------------------------------------------------------------------------------------------------------- feed


def test_looks_at_a_real_spool_and_keeps_nothing_from_being_trimmed(tmp_path: Path) -> None:
    made = write_sample(tmp_path / "sample", rows=6000, devices=8)
    Consumer(made.spool, "archive", SpoolView(made.spool)).register()
    feed = SpoolFeed(made.spool, made.grants)
    look = feed.look()
    assert look.trouble == ""
    assert look.rows == made.telemetry + made.availability + made.quarantine
    assert look.read <= READ_ROWS + 500
    assert look.streams["telemetry"] >= look.read - made.availability - made.quarantine
    assert {each.entity.partition("-")[0] for each in look.heard} == {"press", "pump"}
    assert all(at >= START_S and delay >= 0 for at, delay in look.delays)
    (reader,) = look.readers
    assert (reader.name, reader.running, reader.rows) == ("archive", False, look.rows)
    assert look.spool_bytes > 0
    again = feed.look()
    assert (again.rows, again.read, again.streams["telemetry"]) == (0, 0, 0)
    assert not [path for path in (made.spool / "consumers").glob("*.json") if path.stem != "archive"]


def test_trouble_is_a_line_on_the_page_and_goes_again(tmp_path: Path) -> None:
    made = write_sample(tmp_path / "sample", rows=50, devices=2)
    feed = SpoolFeed(made.spool, made.grants)
    made.grants.chmod(0o644)
    look = feed.look()
    assert "chmod" in look.trouble or "mode" in look.trouble
    assert "\n" not in look.trouble
    made.grants.chmod(0o600)
    assert feed.look().trouble == ""


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
