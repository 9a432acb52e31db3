"""`veilmq check` without a command line: findings of a configuration, and the fate of topics."""

from __future__ import annotations

import socket
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import yaml

from bridge.base import OperatorError
from gateway.base import Settings, StartError, load, parse
from gateway.checking import check as module
from gateway.checking.check import CheckReport, Fate, check, refuse
from gateway.owner.signing import grant, revoke
from gateway.party import Party
from gateway.setup import Made
from keys.grants import Right
from tests.gateway.certificates import Authority
from tests.support.files import edited

LOOPBACK = {"default": {"bind": "127.0.0.1:0"}}


def looked(directory: Path | None = None, *topics: str, **content: Any) -> CheckReport:
    settings = parse({"listeners": LOOPBACK, "allow_anonymous": True, **content}, directory=directory or Path())
    return check(settings, topics)


def texts(report: CheckReport, level: str) -> list[str]:
    return [finding.text for finding in report.findings if finding.level == level]


# ------------------------------------------------------------------------------------------------- listeners


@pytest.mark.parametrize("what", ["certfile", "keyfile", "cafile"])
def test_a_certificate_that_is_no_file_is_an_error(tmp_path: Path, what: str) -> None:
    files = {name: tmp_path / name for name in ("certfile", "keyfile", "cafile")}
    for name, path in files.items():
        if name != what:
            path.touch()
    listener = {"bind": "127.0.0.1:0", "ssl": True, **{name: str(path) for name, path in files.items()}}
    report = looked(listeners={"tls": listener})
    assert f"listener tls: {what} {files[what]} is not a file; correct the path" in texts(report, "error")
    assert report.failed


@pytest.mark.parametrize(
    ("later_days", "level", "said"),
    [(0, "warning", "ends in 1 days"), (5, "error", "ended 4 days ago; renew it")],
)
def test_a_certificate_of_a_listener_that_has_ended_or_ends_soon(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, later_days: int, level: str, said: str
) -> None:
    certfile, keyfile = Authority(tmp_path).issue("edge")
    now = time.time() + later_days * 86_400
    monkeypatch.setattr(module.time, "time", lambda: now)
    report = looked(listeners={"tls": {"bind": "127.0.0.1:0", "certfile": str(certfile), "keyfile": str(keyfile)}})
    (text,) = texts(report, level)
    assert text.startswith(f"listener tls: certificate {certfile} ")
    assert said in text


def test_a_key_of_another_certificate_is_the_line_with_which_a_start_refuses_it(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    certfile, keyfile = authority.issue("edge")[0], authority.issue("other")[1]
    listener = {"bind": "127.0.0.1:0", "certfile": str(certfile), "keyfile": str(keyfile)}
    (text,) = texts(looked(listeners={"tls": listener}), "error")
    assert text.endswith("give a matching pair")


def test_a_data_directory_without_permission_and_a_console_without_its_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module.os, "access", lambda *_: False)
    monkeypatch.setattr(module, "find_spec", lambda _: None)
    report = looked(data=str(tmp_path / "data"), console={"bind": "127.0.0.1:0"})
    data, console = sorted(texts(report, "error"), reverse=True)
    assert data == f"data directory {tmp_path / 'data'}: no permission to write in {tmp_path}; correct its owner"
    assert console == "console: aiohttp is missing; pip install 'veilmq[console]'"


@pytest.mark.parametrize(
    ("listener", "expected"),
    [
        ({"bind": "0.0.0.0:0"}, True),
        ({"bind": ":0"}, True),
        ({"bind": "[::]:0", "type": "ws"}, True),
        ({"bind": "127.0.0.1:0"}, False),
        ({"bind": "[::1]:0"}, False),
        ({"bind": "localhost:0"}, False),
        ({"bind": "0.0.0.0:0", "certfile": "c.pem", "keyfile": "k.pem"}, False),
    ],
)
def test_an_address_in_clear_that_others_reach_is_warned_of(listener: dict[str, object], expected: bool) -> None:
    said = [text for text in texts(looked(listeners={"wide": listener}), "warning") if "in clear" in text]
    assert bool(said) is expected


def test_an_address_that_is_not_of_this_machine(tmp_path: Path) -> None:
    (text,) = texts(looked(listeners={"far": {"bind": "192.0.2.1:18830"}}), "error")
    assert text.startswith("listener far: 192.0.2.1:18830: ")
    assert text.endswith("bind an address of this machine")


@pytest.mark.parametrize("bind", ["127.0.0.1:x", "[::1]"])
def test_the_metrics_port_is_an_address(bind: str) -> None:
    found = list(module._check_port("metrics", bind))
    assert [(f.level, f.text) for f in found] == [
        ("error", f"metrics: bind {bind} is not HOST:PORT; write e.g. 127.0.0.1:1883")
    ]


def test_a_port_that_asks_for_privileges(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(self: socket.socket, address: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(socket.socket, "bind", refused)
    assert module._port_trouble("127.0.0.1", 80) == "not permitted; bind a port above 1023"


def test_a_socket_file_needs_a_folder_and_a_free_name(tmp_path: Path) -> None:
    (tmp_path / "file").touch()

    def found(path: Path) -> tuple[str, str]:
        (finding,) = module._check_unix("local", path)
        return finding.level, finding.text

    assert found(tmp_path / "new")[0] == "ok"
    assert found(tmp_path / "file") == (
        "error", f"listener local: {tmp_path}/file is no socket; remove it or bind another path",
    )  # fmt: skip
    assert found(tmp_path / "absent" / "x")[1].endswith("is no directory; make it or bind another path")
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(tmp_path / "socket"))
    assert found(tmp_path / "socket")[0] == "ok", "what a broker that crashed left there is replaced"


# ------------------------------------------------------------------------------------------- limits, data


@pytest.mark.parametrize(
    ("limits", "said"),
    [
        ({"connections": 10, "connections_per_address": 11}, "limits.connections_per_address is above"),
        ({"connections": 10, "half_open": 11}, "limits.half_open is above limits.connections"),
        ({"packet_bytes": 2_000, "connect_bytes": 3_000}, "limits.connect_bytes is above limits.packet_bytes"),
        ({"packet_bytes": 1 << 20, "queue_bytes": 1 << 19}, "large messages cannot wait"),
        ({"packet_bytes": 1 << 20, "retained_bytes": 1 << 19}, "some cannot be retained"),
    ],
)
def test_limits_that_contradict_each_other_are_warned_of(limits: dict[str, int], said: str) -> None:
    report = looked(limits=limits)
    assert any(said in text for text in texts(report, "warning"))
    assert not report.failed


def test_bounds_that_nobody_wrote_are_not_complained_of() -> None:
    assert not texts(looked(limits={"connections": 10}), "warning")
    assert not texts(looked(limits={"packet_bytes": 1 << 20, "retained_bytes": 1, "retained_messages": 0}), "warning")


def test_more_connections_than_open_files(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "allowed_files", lambda: 1_024)
    (text,) = texts(looked(limits={"connections": 1_000}), "warning")
    assert "open files are limited to 1024; LimitNOFILE=" in text
    monkeypatch.setattr(module, "allowed_files", lambda: None)
    assert not texts(looked(limits={"connections": 1_000}), "warning")


def test_the_data_directory(tmp_path: Path) -> None:
    private, public = tmp_path / "private", tmp_path / "public"
    private.mkdir(mode=0o700)
    public.mkdir()
    public.chmod(0o755)
    assert f"data directory {private}" in texts(looked(data=str(private)), "ok")
    assert f"data directory {private}/not/yet" in texts(looked(data=str(private / "not" / "yet")), "ok")
    (cannot,) = [text for text in texts(looked(data="/proc/nope"), "error") if text.startswith("data directory")]
    assert cannot == "data directory /proc/nope: nothing can be made in /proc: No such file or directory; name another"
    assert texts(looked(data=str(public)), "warning") == [
        f"data directory {public} is open to others; chmod 700 {public}"
    ]
    (tmp_path / "file").touch()
    (text,) = texts(looked(data=str(tmp_path / "file" / "below")), "error")
    assert text.endswith("file is not a directory; name another")


# ---------------------------------------------------------------------------------- topics without an overlay


@pytest.mark.parametrize(
    ("topic", "fate", "why"),
    [
        ("a/#", "refused", "wildcard"),
        ("", "refused", ""),
        ("$SYS/x", "local only", "begin with $"),
        ("plant/x", "local only", "there is no overlay section"),
    ],
)
def test_topics_of_a_plain_broker(topic: str, fate: str, why: str) -> None:
    (found,) = looked(None, topic).fates
    assert (found.topic, found.fate) == (topic, fate)
    assert why in found.why


def test_json_has_the_same_as_the_report() -> None:
    report = looked(None, "x")
    content = report.to_json()
    assert content["topics"][0]["fate"] == "local only"
    assert [f["text"] for f in content["findings"]] == [f.text for f in report.findings]


# -------------------------------------------------------------------------------------------- an overlay


def member(plant: Made, name: str = "g1", **more: Any) -> Settings:
    path = plant.directory / name / "broker.yaml"
    with edited(path) as content:
        content.update({"listeners": LOOPBACK, **more})
    return load(path)


def test_a_protected_topic_and_one_that_stays_here(plant: Made) -> None:
    report = check(member(plant), ["plant/a", "kitchen/a"])
    assert not report.failed, texts(report, "error")
    sealed, local = report.fates
    assert (sealed.fate, sealed.scope, sealed.regions, sealed.tokens) == ("protected", "plant/#", ("region1",), True)
    assert sealed.keys.startswith("keys ")
    assert (local.fate, local.why) == ("local only", "neither protect nor share_plain holds it")


def test_a_topic_that_the_policy_refuses(plant: Made) -> None:
    now = time.time()
    owner = plant.directory / "owner"
    revoke(plant.overlay_path, owner, "g1", [("plant/#", Right.PUBLISH)], now, True)
    grant(plant.overlay_path, owner, "g1", [("plant/a/#", Right.PUBLISH)], now, False)
    (plant.directory / "g1" / "overlay.json").write_bytes(plant.overlay_path.read_bytes())
    inside, outside = check(member(plant), ["plant/a/1", "plant/b"]).fates
    assert inside.fate == "protected"
    assert outside == Fate("plant/b", "refused", "plant/#", why=outside.why)
    assert "does not let us publish there; ask the owner" in outside.why


def test_an_overlay_that_cannot_be_loaded_is_one_error_and_fates_are_unknown(plant: Made) -> None:
    (plant.directory / "g1" / "overlay.json").unlink()
    report = check(member(plant), ["plant/a"])
    assert report.failed
    assert any("overlay.json" in text for text in texts(report, "error"))
    assert report.fates[0].fate == "unknown"


def test_a_certificate_that_ends_soon(plant: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = member(plant)
    assert not any("ends in" in text for text in texts(check(settings, []), "warning"))
    local = module.load_overlay(plant.overlay_path, int(time.time() * 1000)).certificate("g1")
    end_s = local.not_after_ms / 1000 - 10 * 86_400
    monkeypatch.setattr(time, "time", lambda: end_s)
    (text,) = [text for text in texts(check(settings, []), "warning") if "certificate of" in text]
    assert text.startswith("certificate of g1 ends in ")
    assert text.endswith("ask the owner to sign anew")


@pytest.mark.parametrize(("name", "who"), [("r1", "replica"), ("k1", "key server")])
def test_who_serves_the_overlay_listens_for_it(plant: Made, name: str, who: str) -> None:
    found = texts(check(member(plant, name), []), "error")
    assert found == [f"a {who} needs a listener with overlay: true; add one on the address in the overlay"]


@pytest.mark.parametrize(
    ("prefix", "level", "said"),
    [("plant/reports", "ok", "leaves sealed"), ("reports", "warning", "choose a prefix that is protected")],
)
def test_reports_of_traces_should_leave_sealed(plant: Made, prefix: str, level: str, said: str) -> None:
    folder = plant.directory / "g1"
    traces = {"authority": str(folder / "domain" / "ca.pem"), "identity": "identity", "report": {"prefix": prefix}}
    found = texts(check(member(plant, traces=traces), []), level)
    (text,) = [text for text in found if text.startswith("traces.report: ")]
    assert said in text


def test_no_broker_starts_with_an_error_and_the_rest_is_left_to_binding(plant: Made) -> None:
    refuse(member(plant))
    with socket.create_server(("127.0.0.1", 0)) as taken:
        refuse(member(plant, metrics={"bind": f"127.0.0.1:{taken.getsockname()[1]}"}))
    (plant.directory / "g1" / "overlay.json").unlink()
    with pytest.raises(StartError, match=r"overlay\.json"):
        refuse(member(plant))


def test_a_replica_that_protects_does_not_start(plant: Made) -> None:
    content = yaml.safe_load((plant.directory / "r1" / "broker.yaml").read_text())
    settings = member(plant, "r1", overlay={**content["overlay"], "protect": [{"filter": "plant/#"}]})
    assert any("no scope plant/#" in text for text in texts(check(settings, []), "error"))
    with pytest.raises(StartError, match="no scope plant/#"):
        refuse(settings)


@pytest.mark.parametrize("rights", [[("plant/#", Right.PUBLISH)], None])
def test_a_gateway_whose_rights_the_owner_took_starts_again_and_check_says_so(
    plant: Made, rights: list[tuple[str, Right]] | None
) -> None:
    revoke(plant.overlay_path, plant.directory / "owner", "g1", rights, time.time(), True)
    (plant.directory / "g1" / "overlay.json").write_bytes(plant.overlay_path.read_bytes())
    settings = member(plant)
    said = "no right to publish" if rights else "no scope plant/# was granted to us"
    assert any(said in text for text in texts(check(settings, []), "error"))
    refuse(settings)
    Party(settings)


def test_a_gateway_starts_that_protects_what_it_was_never_granted_and_check_says_so(plant: Made) -> None:
    content = yaml.safe_load((plant.directory / "g1" / "broker.yaml").read_text())
    section = content["overlay"]
    protect = [*section["protect"], {"filter": "kitchen/#"}]
    settings = member(plant, overlay={**section, "protect": protect, "share_plain": ["hall/#"]})
    for said in ("protect: no scope kitchen/# was granted to us", "share_plain: no scope hall/# was granted to us"):
        assert any(said in text for text in texts(check(settings, []), "error"))
    refuse(settings)
    assert [secret.clear_filter for secret in Party(settings).outgoing] == ["plant/#"]


# --------------------------------------------------------------------------------- what a start refuses, too


def _older_than_seen(plant: Made) -> None:
    pin = plant.directory / "g1" / "identity" / "overlay.pin"
    Party(load(plant.directory / "g1" / "broker.yaml"))
    pin.write_text(pin.read_text().replace('"version": 1', '"version": 9'))


def _of_another_owner(plant: Made) -> None:
    pin = plant.directory / "g1" / "identity" / "overlay.pin"
    Party(load(plant.directory / "g1" / "broker.yaml"))
    pin.write_text(pin.read_text().replace('"owner": "', '"owner": "AAAA')[:-1] + "}")


@pytest.mark.parametrize("spoil", [_older_than_seen, _of_another_owner])
def test_an_overlay_that_a_start_refuses_is_an_error(plant: Made, spoil: Any) -> None:
    spoil(plant)
    settings = load(plant.directory / "g1" / "broker.yaml")
    with pytest.raises(OperatorError) as refused:
        Party(settings)
    assert str(refused.value) in texts(check(settings, ()), "error")
    with pytest.raises(StartError):
        refuse(settings)


def test_looking_raises_no_pin(plant: Made) -> None:
    check(load(plant.directory / "g1" / "broker.yaml"), ())
    assert not (plant.directory / "g1" / "identity" / "overlay.pin").exists()


def test_a_clock_that_is_behind_is_named(plant: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    behind = time.time() - 2 * 3600
    monkeypatch.setattr(module.time, "time", lambda: behind)
    warnings = texts(check(load(plant.directory / "g1" / "broker.yaml"), ()), "warning")
    assert any("our certificate counts from" in text and "set the clock by NTP" in text for text in warnings)


def test_telemetry_without_its_libraries_or_with_wrong_headers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    collector = {"otlp": "http://127.0.0.1:4318"}
    absent = texts(looked(telemetry=collector | {"headers_file": str(tmp_path / "none")}), "error")
    assert absent == [f"telemetry.headers_file: {tmp_path / 'none'}: No such file or directory"]
    assert not texts(looked(telemetry=collector), "error")
    monkeypatch.delitem(sys.modules, "gateway.telemetry.exporting", raising=False)
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk.trace", None)
    assert texts(looked(telemetry=collector), "error") == [
        "telemetry: opentelemetry is missing; pip install 'veilmq[otel]'"
    ]
