"""The demonstration's own judgement, files, faults and processes; the whole of it runs in the suite's Spark part."""

from __future__ import annotations

import itertools
import json
import math
import os
import random
import signal
import socket
import sqlite3
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from io import StringIO
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console

from bridge.base.topics import check_name
from bridge.contract.machine import Effect, Event, Received, Send, Tick, Wire
from gateway.base.config import load
from gateway.demo import processes, setup
from gateway.demo.liar import Liar
from gateway.demo.logs import (
    PROBE,
    LineLog,
    SeenMessage,
    Sent,
    digest_of,
    id_of,
    read_lines,
    seen_messages,
    sent_messages,
)
from gateway.demo.operators import Ledger
from gateway.demo.play import find_sample, read_sink
from gateway.demo.processes import DemoProcesses
from gateway.demo.report import (
    Blamed,
    DemoReport,
    KeyServiceTally,
    ReportRow,
    SparkTally,
    Tally,
    percentile,
    render,
    tally,
    tally_spark,
)
from gateway.demo.sensors import machine_id, sweep
from gateway.demo.setup import DOMAINS, GATEWAYS, REPLICAS, DemoError, build, free_ports
from gateway.demo.timeline import Action, Timeline
from gateway.trust.domains import LocalIdentity
from gateway.trust.overlay_file import load_overlay, load_secrets
from keys.envelope import PROPERTY_HEADER, PROPERTY_SHARES, to_property
from keys.identity import Identity
from keys.material import Material
from keys.message import MessageHeader, Mode
from keys.sharetree import Place, Share, encode_shares
from keys.signedheader import sign_header
from spark_ingest.jobs.runs import cause
from spark_ingest.writing.sink import PublicationSink
from tests.waits import wait_until

NS = 1_000_000
REGIONS = list(setup.REGIONS.values())
KEY_SERVERS = setup.KEY_SERVERS


def sent(id_: str, confirmed: bool = True, sent_ns: int = 0, plain_ns: int = 0) -> Sent:
    payload = json.dumps({"id": id_})
    return Sent(id_, f"machine/x/cpu/{id_}", digest_of(payload.encode()), payload, (), sent_ns, plain_ns, confirmed)


def seen(message: Sent, at_ns: int = 0) -> SeenMessage:
    return SeenMessage(message.id, message.topic, message.digest, message.properties, at_ns)


def by_id(*messages: Sent) -> dict[str, Sent]:
    return {message.id: message for message in messages}


# -------------------------------------------------------------------------------------------- timeline


@given(st.integers(0, 2**32), st.floats(1, 1000))
def test_the_liar_is_honest_again_before_another_replica_is_killed_and_comes_back(seed: int, seconds: float) -> None:
    timeline = Timeline.draw(seed, seconds, REGIONS, KEY_SERVERS)
    assert timeline == Timeline.draw(seed, seconds, REGIONS, KEY_SERVERS)
    (liars_region,) = (region for region in REGIONS if timeline.liar in region)
    assert timeline.killed not in liars_region
    assert timeline.key_server in KEY_SERVERS
    assert [(step.action, step.replica) for step in timeline.steps] == [
        (Action.KILL, timeline.key_server),
        (Action.LIE, timeline.liar),
        (Action.RECOVER, timeline.liar),
        (Action.KILL, timeline.killed),
        (Action.RESTART, timeline.killed),
        (Action.RESTART, timeline.key_server),
    ]
    times = [step.at_s for step in timeline.steps]
    assert times == sorted(times)
    assert times[0] > 0
    assert times[-1] < seconds


def test_over_many_seeds_every_replica_lies_and_every_one_and_every_key_server_is_killed() -> None:
    drawn = [Timeline.draw(seed, 45, REGIONS, KEY_SERVERS) for seed in range(200)]
    assert {each.liar for each in drawn} == {each.killed for each in drawn} == set(REPLICAS)
    assert {each.key_server for each in drawn} == set(KEY_SERVERS)


@given(st.lists(st.floats(0, 60), max_size=30))
def test_every_step_is_due_exactly_once_however_often_one_looks(looks: list[float]) -> None:
    timeline = Timeline.draw(1, 45, REGIONS, KEY_SERVERS)
    moments = [0.0, *sorted(looks), 60.0]
    found = [step for a, b in itertools.pairwise(moments) for step in timeline.due(a, b)]
    assert found == list(timeline.steps)


# ---------------------------------------------------------------------------------------------- counts


@given(st.lists(st.sampled_from(["once", "never", "twice", "altered", "elsewhere"]), max_size=40), st.integers(0, 9))
@settings(max_examples=60)
def test_every_message_is_counted_for_what_happened_to_it(fates: list[str], invented: int) -> None:
    messages = [sent(str(number)) for number in range(len(fates))]
    received = [seen(sent(f"invented {number}")) for number in range(invented)]
    for fate, message in zip(fates, messages, strict=True):
        good = seen(message)
        received += {
            "once": [good],
            "never": [],
            "twice": [good, good],
            "altered": [replace(good, digest="0" * 64)],
            "elsewhere": [replace(good, topic="machine/y")],
        }[fate]
    random.Random(len(fates)).shuffle(received)
    counted = tally(by_id(*messages), received)
    arrived = fates.count("once") + fates.count("twice")
    assert (counted.published, counted.delivered, counted.lost) == (len(fates), arrived, len(fates) - arrived)
    assert counted.duplicated == fates.count("twice")
    assert counted.wrong == fates.count("altered") + fates.count("elsewhere") + invented
    assert len(counted.latencies_ms) == arrived

    rows = [ReportRow("p", 1, got.id, got.topic, got.digest) for got in received]
    assert tally_spark(by_id(*messages), rows) == SparkTally(
        counted.delivered, counted.lost, counted.wrong, counted.duplicated
    )


def test_probes_count_nowhere_and_unconfirmed_messages_are_neither_published_nor_wrong() -> None:
    messages = by_id(sent("a"), sent("b", confirmed=False))
    received = [seen(message) for message in messages.values()]
    received.append(SeenMessage(PROBE + "1", "machine/x/probe/v3", "", (), 0))
    counted = tally(messages, received)
    assert (counted.published, counted.delivered, counted.lost, counted.wrong) == (1, 1, 0, 0)
    rows = [ReportRow("p", n, got.id, got.topic, got.digest) for n, got in enumerate(received)]
    assert tally_spark(messages, rows) == SparkTally(1, 0, 0, 0)


def test_changed_user_properties_are_wrong() -> None:
    message = replace(sent("a"), properties=(("unit", "%"),))
    assert tally(by_id(message), [seen(message)]).wrong == 0
    assert tally(by_id(message), [replace(seen(message), properties=(("unit", "C"),))]).wrong == 1


def test_latency_runs_from_the_publishing_of_the_same_way() -> None:
    messages = by_id(sent("a", sent_ns=1 * NS, plain_ns=3 * NS))
    received = [seen(messages["a"], at_ns=10 * NS)]
    assert tally(messages, received).latencies_ms == (9.0,)
    assert tally(messages, received, plain=True).latencies_ms == (7.0,)


@given(st.lists(st.floats(0, 1e6), min_size=1), st.floats(0.01, 1))
def test_a_percentile_is_a_value_that_so_many_do_not_exceed(values: list[float], part: float) -> None:
    found = percentile(values, part)
    assert found in values
    assert sum(value <= found for value in values) >= part * len(values)


def test_there_is_no_percentile_of_nothing() -> None:
    assert math.isnan(percentile([], 0.5))


# --------------------------------------------------------------------------------------------- verdict

TIMELINE = Timeline.draw(7, 45, REGIONS, KEY_SERVERS)
INNOCENT = next(name for name in REPLICAS if name not in (TIMELINE.liar, TIMELINE.killed))
GOOD = DemoReport(
    sealed=Tally(2, 2, 0, 0, 0, (4.0, 9.0)),
    plain=Tally(2, 2, 0, 0, 0, (1.0, 2.0)),
    unconfirmed=0,
    spark=SparkTally(2, 0, 0, 0),
    entities=(5, 5),
    unlinked=(),
    blamed=Blamed({TIMELINE.liar: {"control": 3}}, {}),
    timeline=TIMELINE,
    key_service=KeyServiceTally(4, 1, 5, 0),
    sample=None,
)


def test_a_run_in_which_everything_arrived_and_the_liar_is_suspected_succeeds() -> None:
    assert GOOD.failures() == []
    assert replace(GOOD, blamed=Blamed({}, {TIMELINE.liar: ["control"]})).failures() == []
    assert replace(GOOD, blamed=Blamed({TIMELINE.liar: {"r": 1}, INNOCENT: {"r": 1}}, {})).failures() == []


@pytest.mark.parametrize(
    ("bad", "word"),
    [
        (replace(GOOD, sealed=replace(GOOD.sealed, published=0)), "nothing was published"),
        (replace(GOOD, sealed=replace(GOOD.sealed, lost=1)), "lost"),
        (replace(GOOD, sealed=replace(GOOD.sealed, wrong=1)), "altered"),
        (replace(GOOD, sealed=replace(GOOD.sealed, duplicated=1)), "more than once"),
        (replace(GOOD, unconfirmed=1), "never confirmed"),
        (replace(GOOD, spark=replace(GOOD.spark, lost=1)), "no row in Spark"),
        (replace(GOOD, spark=replace(GOOD.spark, wrong=1)), "rows in Spark are altered"),
        (replace(GOOD, spark=replace(GOOD.spark, duplicated=1)), "more than once"),
        (replace(GOOD, blamed=Blamed({}, {})), "nobody suspects"),
        (replace(GOOD, blamed=Blamed({TIMELINE.liar: {"control": 1}}, {INNOCENT: ["control"]})), INNOCENT),
        (replace(GOOD, unlinked=("control",)), "down at control"),
    ],
)
def test_each_defect_alone_fails_the_run_and_is_told(bad: DemoReport, word: str) -> None:
    (failure,) = bad.failures()
    assert word in failure
    assert bad.to_json()["failures"] == [failure]
    assert failure in shown(bad)


def test_what_the_liar_says_about_others_or_itself_does_not_count() -> None:
    liar = TIMELINE.liar
    said = Blamed({INNOCENT: {liar: 9, "control": 1}, liar: {liar: 1}}, {INNOCENT: [liar], liar: ["control", liar]})
    honest = said.without(liar)
    assert honest.suspected == {INNOCENT: {"control": 1}}
    assert honest.named == {liar: ("control",)}


def shown(report: DemoReport) -> str:
    out = StringIO()
    Console(file=out, width=200).print(render(report))
    return out.getvalue()


def test_json_has_the_promised_keys_and_nothing_that_is_not_json() -> None:
    told = json.loads(json.dumps(GOOD.to_json(), allow_nan=False))
    promised = "published delivered lost wrong duplicated spark_rows blamed faults latency_ms"
    assert set(promised.split()) <= set(told)
    assert told["latency_ms"] == {"plain": {"p50": 1.0, "p99": 2.0}, "sealed": {"p50": 4.0, "p99": 9.0}}
    assert told["faults"]["liar"] == TIMELINE.liar
    empty = replace(GOOD, sealed=Tally(0, 0, 0, 0, 0, ()))
    json.dumps(empty.to_json(), allow_nan=False)
    assert "published" in shown(empty)


# ------------------------------------------------------------------------------------------------ logs


def test_what_clients_write_is_what_is_counted(tmp_path: Path) -> None:
    path = tmp_path / "sent.jsonl"
    payload = json.dumps({"id": "m1", "value": 1.5})
    with LineLog(path) as log:
        for id_ in ("m1", "m2"):
            log.write(
                id=id_, topic="t", digest=digest_of(payload.encode()), payload=payload, properties=[("unit", "%")],
                sent_ns=1, plain_ns=2,
            )  # fmt: skip
        log.write(confirmed="m1")
    with path.open("a") as file:
        file.write('{"confirmed": "m2"')  # the disk was full
    messages = sent_messages(read_lines(path))
    assert messages["m1"] == Sent("m1", "t", digest_of(payload.encode()), payload, (("unit", "%"),), 1, 2, True)
    assert not messages["m2"].confirmed
    assert list(read_lines(tmp_path / "absent")) == []

    with LineLog(tmp_path / "seen.jsonl") as log:
        for way in ("sealed", "plain"):
            log.write(path=way, id="m1", topic="t", digest="d", properties=[("unit", "%")], at_ns=5)
    assert seen_messages(read_lines(tmp_path / "seen.jsonl"), "sealed") == [
        SeenMessage("m1", "t", "d", (("unit", "%"),), 5)
    ]


@given(st.binary(max_size=30))
def test_a_payload_that_is_not_ours_has_no_id(payload: bytes) -> None:
    assert isinstance(id_of(payload), str)
    assert id_of(b"\xff" + payload) == ""


def test_sensors_are_real_values_on_valid_topics_that_do_not_tell_the_host() -> None:
    readings = sweep()
    assert len([r for r in readings if r.kind == "cpu"]) == os.cpu_count()
    for reading in readings:
        check_name(f"machine/{machine_id()}/{reading.kind}/{reading.number}")
        assert math.isfinite(reading.value)
    places = [(reading.kind, reading.number) for reading in readings]
    assert len(set(places)) == len(places)
    assert socket.gethostname() not in machine_id()


# ----------------------------------------------------------------------------------------------- files


@pytest.fixture(scope="module")
def layout(tmp_path_factory: pytest.TempPathFactory) -> setup.DemoLayout:
    return build(tmp_path_factory.mktemp("demo"), time.time())


def test_every_role_has_a_configuration_that_loads_and_an_identity_of_its_own_domain(layout: setup.DemoLayout) -> None:
    overlay = load_overlay(layout.overlay, int(time.time() * 1000))
    assert set(overlay.members) == set(DOMAINS)
    assert {name: member.certificate.domain for name, member in overlay.members.items()} == dict(DOMAINS)
    assert len({overlay.members[name].ca for name in REPLICAS}) == len(REPLICAS)
    assert [view.members for _, view in sorted(overlay.views.items())] == list(setup.REGIONS.values())
    for name in (*REPLICAS, *KEY_SERVERS, *GATEWAYS):
        settings = load(layout.config(name))
        assert settings.overlay is not None
        assert settings.overlay.overlay == layout.overlay
        assert (settings.overlay.key_server is not None) == (name in KEY_SERVERS)
        if name not in GATEWAYS:
            assert overlay.members[name].address == settings.listeners["overlay"].bind
            assert settings.listeners["overlay"].overlay


def test_only_those_who_may_read_get_names_and_only_key_servers_what_keys_come_from(layout: setup.DemoLayout) -> None:
    overlay = load_overlay(layout.overlay, int(time.time() * 1000))
    assert [name for name, member in overlay.members.items() if member.box] == ["control", "site", "spark"]
    granted, keys = load_secrets(LocalIdentity.load(layout.identity("spark")), overlay)
    assert {secret.clear_filter for secret in granted} == {setup.TELEMETRY, setup.AVAILABILITY}
    assert len(keys) == 0  # they are fetched
    assert "machine" not in layout.overlay.read_text()
    materials = [load(layout.config(name)).overlay.key_server.material for name in KEY_SERVERS]  # type: ignore[union-attr]
    assert [Material.decode(path.read_bytes()).generations[0].number for path in materials] == [1, 2, 3, 4]
    assert {path.stat().st_mode & 0o077 for path in materials} == {0}


def test_ports_differ_and_one_that_is_taken_is_not_chosen(
    layout: setup.DemoLayout, monkeypatch: pytest.MonkeyPatch
) -> None:
    ports = [*layout.overlay_ports.values(), *layout.client_ports.values(), layout.plain_port]
    assert len(set(ports)) == len(ports)
    with socket.socket() as taken:
        taken.bind((setup.HOST, 0))
        port = taken.getsockname()[1]
        monkeypatch.setattr(setup, "PORTS", range(port, port + 1))
        with pytest.raises(DemoError, match="are free; stop what uses them") as caught:
            free_ports(1)
    assert caught.value.status == 2
    assert free_ports(1) == [port]


def test_a_full_disk_is_told_before_anything_is_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(setup, "FREE_BYTES_MIN", 1 << 62)
    with pytest.raises(DemoError, match="make room or set TMPDIR") as caught:
        build(tmp_path, time.time())
    assert caught.value.status == 2
    assert list(tmp_path.iterdir()) == []


# ------------------------------------------------------------------------------------------------ liar


class Forwarder:
    """Sends on what it receives, unaltered."""

    next_deadline: float | None = None

    def handle(self, event: Event, now: float) -> Sequence[Effect]:
        return [Send("r2a", event.wire)] if isinstance(event, Received) else []


def _wire(publisher: Identity, sequence: int, shares: bool) -> Wire:
    header = MessageHeader(publisher.party_id, b"k" * 16, sequence, 0, 1, 0, 1, False, False, Mode.COPIES, (b"d" * 32,))
    properties = [(PROPERTY_HEADER, to_property(sign_header(publisher, header, "token").encode()))]
    if shares:
        properties.append((PROPERTY_SHARES, to_property(encode_shares([Share((Place(1, 1, 1),), (), b"s" * 32)]))))
    return Wire("token", b"sealed content", properties=tuple(properties))


def test_the_liar_is_honest_until_told_and_after_and_alters_shares_and_content_between(tmp_path: Path) -> None:
    liar = Liar(Forwarder(), 1, tmp_path / "saw.jsonl")
    wire = _wire(Identity.generate(b"p" * 32), 1, shares=True)

    def forwarded() -> Wire:
        (send,) = liar.handle(Received("site", wire), 0.0)
        assert isinstance(send, Send)
        return send.wire

    assert forwarded() == wire
    assert not list(read_lines(tmp_path / "saw.jsonl"))
    liar.lying = True
    lied = forwarded()
    assert lied.payload != wire.payload
    assert dict(lied.properties)[PROPERTY_SHARES] != dict(wire.properties)[PROPERTY_SHARES]
    assert dict(lied.properties)[PROPERTY_HEADER] == dict(wire.properties)[PROPERTY_HEADER]
    liar.handle(Tick(), 0.0)
    liar.lying = False
    assert forwarded() == wire
    (line,) = read_lines(tmp_path / "saw.jsonl")
    assert bytes.fromhex(line["content"]) == wire.payload


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


def test_no_command_leads_to_the_liar() -> None:
    code = (
        "import sys, gateway.cli, gateway.party, gateway.broker.edge_broker, gateway.commands.check; "
        "print([name for name in sys.modules if 'bridge.sim' in name or 'gateway.demo' in name])"
    )
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert told.stdout.strip() == "[]"


# ------------------------------------------------------------------------------------------- operators


def test_blame_is_kept_over_a_crash_of_the_one_who_blamed() -> None:
    ledger = Ledger(["r1a", "control"])
    assert ledger.not_ready() == ["r1a", "control"]

    def say(name: str, suspected: int, links_up: int = 3) -> None:
        figures = {"suspected": {"r1b": suspected}, "named": ["r1b"], "links": 3, "links_up": links_up}
        ledger.take(name, json.dumps(figures).encode())

    say("r1a", 5)
    say("control", 1, links_up=2)
    ledger.take("control", b"\xff")
    ledger.take("control", b"[]")
    assert ledger.not_ready() == ["control"]
    ledger.restarted("r1a")
    assert ledger.not_ready() == ["r1a", "control"]
    assert ledger.blamed().suspected == {"r1b": {"r1a": 5, "control": 1}}
    say("r1a", 2)
    ledger.restarted("a key server that says nothing")
    assert ledger.blamed() == Blamed({"r1b": {"r1a": 7, "control": 1}}, {"r1b": ["r1a", "control"]})


def test_epochs_and_waits_are_those_of_all_roles() -> None:
    ledger = Ledger(["site", "control"])
    assert (ledger.epoch(), ledger.counted("key_waits")) == (0, 0)
    ledger.take("site", b'{"epoch": 7, "counts": {"key_waits": 2}}')
    ledger.take("control", b'{"epoch": 8, "counts": {}}')
    assert (ledger.epoch(), ledger.counted("key_waits")) == (8, 2)


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


def test_a_failed_query_is_told_in_one_line() -> None:
    failure = (
        "[STREAM_FAILED] Query [id = 1] terminated\nTraceback (most recent call last):\n"
        '  File "x.py", line 1\nspark_ingest.errors.GrantsError: grants=f is not a grant; ask\n'
        "\nJVM stacktrace:\norg.apache.spark.SparkException: Job aborted"
    )
    assert cause(failure) == "spark_ingest.errors.GrantsError: grants=f is not a grant; ask"
    assert cause("something else\nmore") == "something else"


# ------------------------------------------------------------------------------------------- processes


def _await(fleet: DemoProcesses) -> DemoError:
    errors: list[DemoError] = []

    def ended() -> bool:
        try:
            fleet.check()
        except DemoError as error:
            errors.append(error)
        return bool(errors)

    assert wait_until(ended), "the process did not end"
    return errors[0]


def test_a_process_that_dies_is_told_with_the_end_of_its_log(tmp_path: Path) -> None:
    with DemoProcesses(tmp_path) as fleet:
        fleet.start("r1a", "-c", "import sys; print('first'); sys.exit('last words')")
        error = _await(fleet)
    assert error.status == 1
    assert str(error).startswith("r1a ended unexpectedly with status 1")
    assert set(error.tail) == {"first", "last words"}


def test_bad_input_of_a_process_is_one_line_and_status_2(tmp_path: Path) -> None:
    code = "import sys; print('veilmq: the port is in use; bind another', file=sys.stderr); sys.exit(2)"
    with DemoProcesses(tmp_path) as fleet:
        fleet.start("plain", "-c", code)
        error = _await(fleet)
    assert (error.status, str(error), error.tail) == (2, "plain: the port is in use; bind another", ())


def test_a_killed_process_is_no_accident_and_runs_again(tmp_path: Path) -> None:
    with DemoProcesses(tmp_path) as fleet:
        process = fleet.start("r1a", "-c", "import time; time.sleep(60)")
        process.kill()
        fleet.check()
        fleet.start("r1a", "-c", "import time; time.sleep(60)")
        fleet.check()
        fleet["r1a"].signal(signal.SIGKILL)  # this one nobody asked for
        assert "by signal 9" in str(_await(fleet))


def test_children_talk_and_hear(tmp_path: Path) -> None:
    code = (
        "from gateway.demo.child import Commands, emit\ncommands = Commands()\nemit('ready', n=1)\n"
        "print('noise')\nemit('heard', word=commands.next(20))\nemit('end', word=commands.next(20))"
    )
    with DemoProcesses(tmp_path) as fleet:
        process = fleet.start("witness", "-c", code, talks=True)
        process.may_end = True
        process.say("go")
        process.say("stop")
        assert process.wait(20)
        assert process.events() == [
            {"event": "ready", "n": 1},
            {"event": "heard", "word": "go"},
            {"event": "end", "word": "stop"},
        ]


def test_nothing_is_left_of_a_process_that_will_not_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "TERMINATE_S", 0.2)
    code = (
        "import signal, subprocess, sys, time, pathlib\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)'])\n"
        "pathlib.Path('pid.new').write_text(str(child.pid)); pathlib.Path('pid.new').rename('pid')\ntime.sleep(60)"
    )
    with DemoProcesses(tmp_path) as fleet:
        fleet.start("stubborn", "-c", code)
        assert wait_until((tmp_path / "pid").exists)
        pid = int((tmp_path / "pid").read_text())
        os.kill(pid, 0)
    assert wait_until(lambda: not _runs(pid)), "the kernel takes its time to end a killed process, not so long"


def _runs(pid: int) -> bool:
    """Whether it is there and no zombie that its new parent has not noticed."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] not in "ZX"
    except FileNotFoundError:
        return False
