"""The HTML of the dashboard's cards, without a browser."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

from spark_ingest.dashboard import board as board_module
from spark_ingest.dashboard.board import (
    Board,
    BoardReader,
    BoardSample,
    HeardEntity,
    Look,
    Scrape,
)
from spark_ingest.dashboard.html import TITLES, amount, cards, curve, seconds, size

pytest.importorskip("pyarrow")


HOSTILE = '<img src=x onerror="alert(1)">&"\''


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
        board.take_look(
            Look(
                sealed_batches=10, read=9, streams={"telemetry": 7, "availability": 1, "quarantine": 1},
                    delays=[(at, 0.2)],
                heard=[HeardEntity(name, name, name, 1, 1.0)], reasons={name: 1},
                readers=[BoardReader(name, True, 5, 10, 7.5, 1.0), BoardReader("gone", False, None, None, None, 1.0)],
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
        for html in cards(full(name).shown_figures(), 6.0).values():
            parser = _Balanced()
            parser.feed(html)
            assert not parser.open
    for html in cards(Board().shown_figures(), 6.0).values():
        _Balanced().feed(html)


def test_cards_say_in_words_what_colours_say() -> None:
    shown = cards(full("press").shown_figures(), 6.0)
    assert set(shown) == set(TITLES)
    assert "named a liar" in shown["members"]
    assert "before what was trimmed" in shown["consumers"]
    assert 'aria-valuenow="95"' in shown["spool"]
    assert 'role="img" aria-label="Rows a second, five minutes: now 5, at most 5"' in shown["throughput"]
    assert 'scope="col"' in shown["queries"]
    assert '<th scope="col">Member</th>' in shown["members"]
    assert "<td>7.5 s</td>" in shown["consumers"]


def test_cells_say_how_long_ago_entities_were_heard_of() -> None:
    board, day = Board(), board_module.UNHEARD_S
    told = [("fresh", 325 * day - 4), ("old", 1.0), ("nobody knows", None)]
    board.take_look(Look(heard=[HeardEntity("g", name, "online", 1, None, at) for name, at in told]), 325 * day)
    html = cards(board.shown_figures(), 325 * day)["entities"]
    assert re.findall(r'class="cell (\w+)".*?<b>(.*?)</b><span>online</span>(.*?)</li>', html) == [
        ("warn", "old", "<small>325 days ago</small>"),
        ("fine", "fresh", "<small>4.0 s ago</small>"),
        ("fine", "nobody knows", ""),
    ]
    assert re.findall(r'class="badge (\w+)">(.*?)<', html) == [("fine", "2 online"), ("warn", "1 unheard")]


def test_every_state_of_a_statement_has_its_kind() -> None:
    from spark_ingest.opening.statements import _STATES

    kinds: dict[str, set[str]] = {"fine": set(), "warn": set(), "bad": set()}
    for state in {"online", "offline", *filter(None, _STATES.values())}:
        board = Board()
        board.take_look(Look(heard=[HeardEntity("g", "e", state, 1, None)]), 1.0)
        (kind,) = re.findall(r'class="cell (\w+)"', cards(board.shown_figures(), 1.0)["entities"])
        kinds[kind].add(state)
    assert kinds == {
        "fine": {"online", "ready", "alive"},
        "warn": {"initializing", "recovering", "shutdown", "suspected", "silent", "unknown"},
        "bad": {"offline", "failed", "disconnected"},
    }


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


def test_colours_are_the_consoles() -> None:
    from gateway import console

    told = (Path(console.__file__).parent / "static" / "page.css").read_text()
    css = Path(board_module.__file__).with_name("dashboard.css").read_text()
    names = {"ink": "text", "paper": "ground", "soft": "card", "line": "line", "well": "fine", "broken": "bad"}
    for theirs, ours in (names | {"degraded": "warn", "a": "accent"}).items():
        assert re.findall(rf"--{theirs}: (#\w+)", told) == re.findall(rf"--{ours}: (#\w+)", css), theirs


@pytest.mark.parametrize("theme", [":root", "body.body--dark"])
def test_contrast_of_text_is_at_least_4_5(theme: str) -> None:
    """WCAG 2.2, 1.4.3, for every pair of colours that the sheet puts on each other."""
    css = Path(board_module.__file__).with_name("dashboard.css").read_text()
    (block,) = re.findall(rf"^{re.escape(theme)} {{(.*?)}}", css, re.MULTILINE | re.DOTALL)
    colours = dict(re.findall(r"--([\w-]+): (#\w{6})", block))
    pairs = [
        (text, ground) for text in ("text", "quiet", "accent", "fine", "warn", "bad") for ground in ("ground", "card")
    ]
    for text, ground in pairs:
        light, dark = sorted((_luminance(colours[text]), _luminance(colours[ground])), reverse=True)
        assert (light + 0.05) / (dark + 0.05) >= 4.5, (theme, text, ground)
