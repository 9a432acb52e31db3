"""`mosquitto.conf` becomes our YAML; nothing is dropped in silence, and nothing is opened wider than it was."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from gateway.base import load
from gateway.cli import run
from gateway.importing.mosquitto_conf import BY_LISTENER_SETTINGS, OF_BRIDGE, OF_LISTENER
from gateway.importing.translating import NEEDLESS
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
clientid_prefixes dev-
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
    for word in ("clientid_prefixes is not carried over", "bridge_alpn is not carried over", "log_dest is not needed",
                 "no retained messages and sessions are imported"):  # fmt: skip
        assert word in said
    settings = load(tmp_path / "new" / "broker.yaml")
    assert [listener.type for listener in settings.listeners.values()] == ["tcp", "ws", "tcp"]
    assert settings.listeners["listener2"].max_connections == 7
    tls = settings.listeners["listener3"]
    assert (tls.bind, tls.ssl, tls.require_client_certificate) == ("0.0.0.0:21992", True, True)
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
    assert settings["listeners"]["listener1"]["bind"] == "127.0.0.1:1883"
    assert settings["allow_anonymous"]
    settings = made(tmp_path, "listener 1884\n").settings
    assert not settings["allow_anonymous"]
    assert not made(tmp_path, "port 1884\n").settings["allow_anonymous"]


@pytest.mark.parametrize("line", ["mount_point site/", "psk_file psk", "use_identity_as_username true", "crlfile crl"])
def test_a_listener_that_would_be_wider_is_left_out(tmp_path: Path, line: str) -> None:
    out = made(tmp_path, f"listener 1\nlistener 2\n{line}\n")
    assert [listener["bind"] for listener in out.settings["listeners"].values()] == ["0.0.0.0:1"]
    assert any("is left out" in note for note in out.notes)


def test_settings_of_single_listeners_become_the_narrowest(tmp_path: Path) -> None:
    out = made(tmp_path, "per_listener_settings true\nlistener 1\nallow_anonymous true\nlistener 2\npassword_file p\n")
    assert not out.settings["allow_anonymous"]
    assert any("allow_anonymous differed" in note for note in out.notes)
    assert any("was of some listeners" in note for note in out.notes)


def test_every_directive_of_the_manual_is_answered_for(tmp_path: Path) -> None:
    """Whatever Mosquitto knows is carried over, needless or said to be left; the words of its example file."""
    example = Path("/usr/share/doc/mosquitto/examples/mosquitto.conf.gz")
    example = example if example.exists() else example.with_suffix("")
    if not example.exists() or shutil.which("zcat") is None:
        pytest.skip("Mosquitto's example configuration is not here")
    text = subprocess.run(["zcat", "-f", str(example)], capture_output=True, text=True, check=True).stdout
    words = {line[1:].split()[0] for line in text.splitlines() if line.startswith("#") and line[1:2].isalpha()}
    words -= {"bridge_certfile", "bridge_keyfile", "certfile", "keyfile", "require_certificate"}  # go together, above
    words -= {"include_dir", "listener", "connection", "topic", "address"}
    assert len(words) >= 70
    for word in sorted(words):
        out = made(tmp_path, f"listener 1\nconnection c\naddress a\ntopic x\n{word} 5\nlistener 2\n{word} 5\n", False)
        said = any(f": {word} " in note for note in out.notes)
        plain = made(tmp_path, "listener 1\nconnection c\naddress a\ntopic x\nlistener 2\n")
        assert said or out.settings != plain.settings or out.files or out.database or word == "allow_anonymous" or (
            word in ("cafile", "capath", "keyfile", "certfile", "persistence", "persistence_location", "acl_file",
                     "require_certificate", "bridge_insecure", "cleansession", "max_packet_size", "port",
                     "retain_available", "keepalive_interval", "protocol", "max_topic_alias", "bind_address",
                     "max_keepalive")
        ), word  # fmt: skip


def test_the_tables_do_not_contradict_each_other() -> None:
    assert not OF_LISTENER & BY_LISTENER_SETTINGS
    assert "topic" in OF_BRIDGE
    assert "listener" not in NEEDLESS
