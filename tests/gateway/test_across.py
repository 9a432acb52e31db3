"""What a client at one gateway sees of what happened at another one, against one broker: docs/reference/across.md."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st

from gateway.mqtt5.packets import Version
from tests.gateway.across import SCOPES, Die, Follow, Join, Leave, Pass, Say, Step, Unfollow, both_worlds, compare

V3, V5 = Version.V311, Version.V5
A, B = Join("a", 0), Join("b", 1)
PAGE = Path(__file__).parents[2] / "docs" / "reference" / "across.md"


def kept(topic: str, payload: bytes, client: str = "a", **more: object) -> Say:
    return Say(client, topic, payload, retain=True, **more)  # type: ignore[arg-type]


ROWS: dict[str, list[Step]] = {
    "a retained value, first subscriber": [A, kept("t/1", b"v"), B, Follow("b", "t/+"), Follow("b", "t/+")],
    "the same, years later": [A, kept("t/1", b"v"), Pass(2.3), B, Follow("b", "t/#", 2)],
    "the same in MQTT 3.1.1": [A, kept("t/1", b"v"), Join("b", 1, V3), Follow("b", "t/1"), kept("t/1", b"w")],
    "Retain Handling 1": [
        A, kept("t/1", b"v"), B, Follow("b", "t/#", handling=1), Follow("b", "t/#", handling=1), kept("t/1", b"w"),
    ],
    "Retain Handling 2": [A, kept("t/1", b"v"), Pass(2.3), B, Follow("b", "t/#", handling=2), kept("t/1", b"w")],
    "retain as published": [
        A, kept("t/1", b"v"), B, Follow("b", "t/#", as_published=True), kept("t/1", b"w"), Say("a", "t/1", b"live"),
        Follow("b", "t/#"), kept("t/1", b"x"),
    ],
    "a shared subscription gets no retained messages": [
        A, kept("t/1", b"v"), B, Follow("b", "$share/g/t/#"), kept("t/1", b"w"),
    ],
    "a value that was replaced and one that was cleared while nobody followed": [
        A, B, Follow("b", "t/#"), kept("t/1", b"old"), kept("t/2", b"old"), Unfollow("b", "t/#"), kept("t/1", b"new"),
        kept("t/2", b""), kept("t/3", b"more"), Pass(2.3), Follow("b", "t/#"),
    ],
    "a value that is replaced, and one that is cleared, on the other side": [
        A, B, kept("t/1", b"of a"), kept("t/1", b"of b", "b"), kept("t/2", b"of b", "b"), kept("t/2", b""),
        Follow("a", "t/#"), Follow("b", "t/#"), kept("t/1", b"", "b"), Follow("a", "t/1"),
    ],
    "one's own newer value stays": [A, B, kept("t/1", b"of b", "b"), kept("t/1", b"of a"), Pass(2.3),
                                    Follow("a", "t/#"), Follow("b", "t/#")],
    "a value that changes at once after the subscription": [
        A, kept("t/1", b"v"), kept("t/2", b"v"), Pass(2.3), B, Join("c", 1), Follow("b", "t/#", handling=2),
        kept("t/1", b"w"), Follow("c", "t/#"), kept("t/2", b""), Follow("b", "t/#"),
    ],
    "several subscribers at once": [
        A, kept("t/1", b"v"), kept("t/2", b"v", qos=0), B, Join("c", 1, V3), Join("d", 0), Follow("b", "t/#"),
        Follow("c", "t/1"), Follow("d", "t/#", handling=1), Follow("b", "t/1", identifier=7), Follow("b", "t/2", 0),
    ],
    "overlapping filters and identifiers": [
        A, kept("t/1", b"v"), B, Follow("b", "t/+", 0, identifier=1), Follow("b", "t/1", 2, identifier=2),
        kept("t/1", b"w", qos=2),
    ],
    "no local": [A, Follow("a", "t/#", no_local=True), kept("t/1", b"v"), B, Follow("b", "t/#", no_local=True),
                 kept("t/1", b"w", "b"), Say("b", "t/2", b"x")],
    "each QoS": [A, B, Follow("b", "t/#", 2), *(kept("t/1", b"%d" % qos, qos=qos) for qos in (0, 1, 2)),
                 Join("c", 1), Follow("c", "t/#", 2), Follow("c", "t/1", 1)],
    "what happened while a session was away": [
        A, B, Follow("b", "t/#"), Leave("b"), kept("t/1", b"v"), Say("a", "t/2", b"x"), kept("t/1", b""),
        Join("b", 1, clean=False), Follow("b", "t/#", handling=1), kept("t/1", b"w"),
    ],
    "wills": [A, B, Follow("b", "t/#"), Die("d", 0, "t/w", b"gone", retain=True), Join("c", 1), Follow("c", "t/w")],
    "properties": [
        A, B, Follow("b", "t/#"), kept("t/1", b"{}", extras=(
            ("content_type", "application/json"), ("user", (("k", "v"), ("k", "w"))), ("payload_format", 1),
            ("correlation_data", b"7"), ("message_expiry_s", 3600))),
        Join("c", 1), Follow("c", "t/#"), Join("d", 0, V3), Follow("d", "t/#"),
    ],
    "an expiry interval runs from the PUBLISH": [
        A, kept("t/1", b"v", extras=(("message_expiry_s", 20),)), kept("t/2", b"v", extras=(("message_expiry_s", 2),)),
        Pass(3.0), B, Follow("b", "t/#"), Join("c", 1), Follow("c", "t/#"),
    ],
    "the same in a session that is away": [
        A, B, Follow("b", "t/#"), Leave("b"), Say("a", "t/1", b"v", extras=(("message_expiry_s", 20),)),
        Say("a", "t/2", b"v", extras=(("message_expiry_s", 1),)), Pass(2.0), Join("b", 1, clean=False),
    ],
}  # fmt: skip
"""By the rows of the page: scripts whose events are equal."""


def test_the_page_has_each_row_and_no_other() -> None:
    table = PAGE.read_text("utf-8").partition("## What is equal")[2].partition("## ")[0]
    rows = re.findall(r"^\| ([^|]+) \|", table, re.MULTILINE)
    assert rows[1:] == list(ROWS), "its first row is the head"


class Stage:
    """Both worlds, kept for many scripts; each has topics of its own."""

    def __init__(self, directory: Path) -> None:
        self._runner = asyncio.Runner()
        self._worlds = both_worlds(directory)
        self._one, self._two = self._runner.run(self._worlds.__aenter__())
        self.scripts = 0

    def differences(self, scripts: Sequence[Sequence[Step]]) -> list[str]:
        """What is not the same, of each script; all run at one time, each in a scope of its own."""
        self.scripts += len(scripts)
        return self._runner.run(self._compare_all(scripts))

    async def _compare_all(self, scripts: Sequence[Sequence[Step]]) -> list[str]:
        assert len(scripts) <= SCOPES
        prefixes = [f"s{scope}/{self.scripts}" for scope in range(len(scripts))]
        return await asyncio.gather(
            *(
                compare(self._one.another(), self._two.another(), script, prefix)
                for script, prefix in zip(scripts, prefixes, strict=True)
            )
        )

    def end(self) -> None:
        self._runner.run(self._worlds.__aexit__(None, None, None))
        self._runner.close()


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    made = Stage(tmp_path_factory.mktemp("across"))
    yield made
    made.end()


def test_two_gateways_show_what_one_broker_shows(stage: Stage) -> None:
    found = dict(zip(ROWS, stage.differences(list(ROWS.values())), strict=True))
    assert {row: difference for row, difference in found.items() if difference} == {}


# ------------------------------------------------------------------------------------------------ random scripts

CLIENTS = {"a": 0, "b": 1, "c": 1, "d": 0}
TOPICS, FILTERS = ("t/1", "t/2", "u/1"), ("t/1", "t/2", "t/+", "t/#", "+/1", "#", "u/#")
TOGETHER = 8
"""Random scripts that run at one time."""


@st.composite
def scripts(draw: st.DrawFn) -> list[Step]:
    """A script that makes sense: who is not there does nothing, and no payload comes twice."""
    versions = {name: draw(st.sampled_from([V5, V5, V3])) for name in CLIENTS}
    there: set[str] = set()
    known: set[str] = set()
    steps: list[Step] = []
    for number in range(draw(st.integers(4, 14))):
        name = draw(st.sampled_from(sorted(CLIENTS)))
        if name not in there:
            clean = name not in known or draw(st.booleans())
            steps.append(Join(name, CLIENTS[name], versions[name], clean))
            there.add(name)
            known.add(name)
        steps.append(draw(_steps(name, number, versions[name] is V5)))
        if isinstance(steps[-1], Leave):
            there.discard(name)
    return steps


@st.composite
def _steps(draw: st.DrawFn, name: str, number: int, is_v5: bool) -> Step:
    kind = draw(
        st.sampled_from(["say", "say", "say", "follow", "follow", "follow", "unfollow", "leave", "die", "pass"])
    )
    topic, topic_filter = draw(st.sampled_from(TOPICS)), draw(st.sampled_from(FILTERS))
    if kind == "say":
        payload = draw(st.sampled_from([b"%d" % number, b"%d" % number, b""]))
        extras = draw(st.sampled_from([(), (("message_expiry_s", 60),), (("user", (("k", "v"),)),)])) if is_v5 else ()
        return Say(name, topic, payload, draw(st.integers(0, 2)), payload == b"" or draw(st.booleans()), extras)
    if kind == "follow":
        options = draw(st.tuples(st.booleans(), st.booleans(), st.integers(0, 2), st.integers(0, 3)))
        no_local, as_published, handling, identifier = options if is_v5 else (False, False, 0, 0)
        if name == "d" and draw(st.booleans()):  # one member of the group: who of several gets what is nobody's promise
            topic_filter, no_local = f"$share/g/{topic_filter}", False
        qos = draw(st.integers(0, 2))
        return Follow(name, topic_filter, qos, no_local, as_published, handling, identifier)
    if kind == "unfollow":
        return Unfollow(name, topic_filter)
    if kind == "leave":
        return Leave(name)
    if kind == "die":
        return Die(f"dying{number}", draw(st.integers(0, 1)), topic, b"%d" % number, draw(st.booleans()))
    return Pass(2.3)


def _tried(stage: Stage, found: list[list[Step]]) -> None:
    wrong = [(each, why) for each, why in zip(found, stage.differences(found), strict=True) if why]
    assert not wrong, wrong[0]


UNHURRIED = [HealthCheck.too_slow, HealthCheck.function_scoped_fixture, HealthCheck.data_too_large]


@seed(1)
@settings(max_examples=2, deadline=None, database=None, suppress_health_check=UNHURRIED)
@given(st.lists(scripts(), min_size=TOGETHER, max_size=TOGETHER))
def test_random_scripts_show_the_same(stage: Stage, found: list[list[Step]]) -> None:
    _tried(stage, found)


@pytest.mark.slow
@pytest.mark.parametrize("number", range(7))
def test_many_random_scripts_show_the_same(stage: Stage, number: int) -> None:
    before = stage.scripts

    @seed(100 + number)
    @settings(max_examples=20, deadline=None, database=None, suppress_health_check=UNHURRIED)
    @given(st.lists(scripts(), min_size=TOGETHER, max_size=TOGETHER))
    def tries(found: list[list[Step]]) -> None:
        _tried(stage, found)

    tries()
    print(f"{stage.scripts - before} random scripts of seed {100 + number}")
