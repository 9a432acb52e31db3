"""`mosquitto.conf` becomes our YAML; nothing is dropped in silence, and nothing is opened wider than it was."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gateway.base import load
from gateway.cli import run
from tests.gateway.importing.test_mosquitto_conf import made

FULL = """
# everything that a site may have
persistence true
persistence_location {0}/
log_dest syslog
allow_anonymous false
password_file {0}/pw
acl_file {0}/acl
max_queued_messages 5000
max_inflight_messages 40
persistent_client_expiration 14d
listener 21990 127.0.0.1
listener 21991 127.0.0.1
protocol websockets
max_connections 7
listener 21992
cafile {0}/ca.pem
certfile {0}/c.pem
keyfile {0}/k.pem
require_certificate true
connection cloud
address cloud.example.net:8883 other.example.net
topic plant/# out 1 "" site1/
topic cmd/# in 2 cmds/ c/
topic "" both 1 a/b/x q/x
remote_username u
remote_password secret
bridge_cafile {0}/ca.pem
bridge_insecure true
bridge_protocol_version mqttv50
bridge_alpn mqtt
"""


def test_a_whole_site(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "pw").write_text("ann:$7$1$YQ==$YQ==\n")
    (tmp_path / "acl").write_text("user ann\ntopic readwrite plant/#\n")
    (tmp_path / "mosquitto.conf").write_text(FULL.format(tmp_path))
    assert run(["import", str(tmp_path / "mosquitto.conf"), "-o", str(tmp_path / "new")]) == 0
    said = capsys.readouterr().out
    for word in ("changed     {conf}:31  bridge_alpn  no ALPN", "not needed  {conf}:5  log_dest",
                 "no retained messages and sessions are imported"):  # fmt: skip
        assert word.format(conf=tmp_path / "mosquitto.conf") in said
    settings = load(tmp_path / "new" / "broker.yaml")
    assert [listener.type for listener in settings.listeners.values()] == ["tcp", "ws", "tcp"]
    assert settings.listeners["listener2"].max_connections == 7
    tls = settings.listeners["listener3"]
    assert (tls.bind, tls.ssl, tls.require_client_certificate) == (":21992", True, True)
    assert (settings.limits.queue_messages, settings.limits.in_flight) == (5000, 40)
    assert settings.session_expiry_s == 14 * 86_400
    assert not settings.allow_anonymous
    bridge = settings.bridges["cloud"]
    assert bridge.addresses == ["cloud.example.net:8883", "other.example.net:1883"]
    assert [(t.local, t.remote, t.direction, t.qos) for t in bridge.topics] == [
        ("plant/#", "site1/plant/#", "out", 1), ("cmds/cmd/#", "c/cmd/#", "in", 2), ("a/b/x", "q/x", "both", 1),
    ]  # fmt: skip
    assert bridge.tls is not None
    assert not bridge.tls.check_hostname
    assert bridge.password_file is not None
    assert bridge.password_file.read_text() == "secret"
    for name in ("passwords", "acl", "bridge-cloud.password"):
        assert (tmp_path / "new" / name).stat().st_mode & 0o077 == 0
    assert "secret" not in (tmp_path / "new" / "broker.yaml").read_text()


def test_no_listener_serves_this_machine_only_and_anybody_as_mosquitto_2(tmp_path: Path) -> None:
    settings = made(tmp_path, "").settings
    assert settings["listeners"]["listener1"]["bind"] == "localhost:1883"
    assert settings["allow_anonymous"]
    settings = made(tmp_path, "listener 1884\n").settings
    assert not settings["allow_anonymous"]
    assert not made(tmp_path, "port 1884\n").settings["allow_anonymous"]


def test_a_refusal_writes_nothing_and_says_all_of_them_with_their_cures(tmp_path: Path, veilmq: Any) -> None:
    path = tmp_path / "mosquitto.conf"
    path.write_text("listener 1\nuse_username_as_clientid true\nlistener 2\nmount_point site/\n")
    status, said, err = veilmq("import", path, "-o", tmp_path / "new")
    assert (status, err.count("\n")) == (2, 1)
    assert "2 lines are refused, and nothing is written" in err
    assert not (tmp_path / "new").exists()
    rows = said.splitlines()
    assert rows[0].startswith("taken       ")
    assert [row.split()[:3] for row in rows[-2:]] == [
        ["refused", f"{path}:2", "use_username_as_clientid"], ["refused", f"{path}:4", "mount_point"],
    ]  # fmt: skip


def test_mosquitto_bounds_nothing_unless_it_is_told(tmp_path: Path) -> None:
    limits = made(tmp_path, "").settings["limits"]
    assert limits["subscriptions"] == 1_000_000
    assert (limits["queue_messages"], limits["in_flight"]) == (1_000, 20)
    assert limits["packet_bytes"] <= 268_435_455, "paho refuses a larger Maximum Packet Size"
    limits = made(tmp_path, "global_max_clients 7\nmax_queued_bytes 4096\nmax_packet_size 2000\n").settings["limits"]
    assert (limits["sessions"], limits["queue_bytes"], limits["packet_bytes"]) == (7, 4096, 2000)


def test_a_database_without_a_location_may_be_in_two_places(tmp_path: Path, veilmq: Any) -> None:
    path = tmp_path / "mosquitto.conf"
    path.write_text("persistence true\npersistence_file abc.db\n")
    assert made(tmp_path, path.read_text()).database == [Path("abc.db"), Path("/var/lib/mosquitto/abc.db")]
    status, said, _ = veilmq("import", path, "-o", tmp_path / "new")
    assert status == 0
    assert f"{Path.cwd()}/abc.db or /var/lib/mosquitto/abc.db is not there" in said
    assert "name the file with --db" in said


def test_the_database_of_mosquittos_sqlite_plugin_is_found(tmp_path: Path) -> None:
    lines = "global_plugin /usr/lib/mosquitto_persist_sqlite.so\nplugin_opt_db_file /x/m.sqlite3\n"
    assert made(tmp_path, lines).database == [Path("/x/m.sqlite3")]
    assert made(tmp_path, f"{lines}persistence_location /y\n").database == [Path("/y/mosquitto.sqlite3")]
