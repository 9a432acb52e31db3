"""`connection` sections of a `mosquitto.conf`: what becomes of each directive, and that no topic changes its name."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.base.config_bridges import BridgeTopic
from gateway.importing import ConfError, Translated, read_conf, translate
from gateway.importing.translating_bridges import _split_names


def bridged(tmp_path: Path, lines: str, name: str = "cloud") -> tuple[dict[str, Any], Translated]:
    path = tmp_path / "mosquitto.conf"
    path.write_text(f"connection {name}\n{lines}\n")
    made = translate(read_conf(path))
    return made.settings["bridges"][name], made


WHOLE = "address a.example\ntopic x\n"


@pytest.mark.parametrize(
    ("line", "key", "value"),
    [
        ("remote_clientid edge-1", "client_id", "edge-1"),
        ("clientid edge-1", "client_id", "edge-1"),
        ("username ann", "username", "ann"),
        ("keepalive_interval 60", "keep_alive_s", 60),
        ("keepalive_interval 1", "keep_alive_s", 5),
        ("try_private false", "try_private", False),
        ("bridge_max_packet_size 2048", "packet_bytes", 2_048),
        ("cleansession true", "session_expiry_s", 0),
        ("bridge_protocol_version mqttv50", "version", "5"),
        ("notification_topic bridge/state", "status_topic", "bridge/state"),
        ("bridge_cafile /ca.pem\nbridge_insecure true", "tls", {"cafile": "/ca.pem", "check_hostname": False}),
        ("bridge_capath /etc/ssl/certs", "tls", {"capath": "/etc/ssl/certs"}),
        ("bridge_tls_use_os_certs true", "tls", {}),
        ("bridge_session_expiry_interval 60\nbridge_protocol_version mqttv50", "session_expiry_s", 60),
        ("bridge_cafile /ca.pem", "tls", {"cafile": "/ca.pem"}),
    ],
)
def test_what_is_carried_over(tmp_path: Path, line: str, key: str, value: object) -> None:
    found, made = bridged(tmp_path, WHOLE + line)
    assert found[key] == value
    assert not made.refusals


def test_a_password_becomes_a_file_of_its_own(tmp_path: Path) -> None:
    found, made = bridged(tmp_path, WHOLE + "remote_username ann\nremote_password hunter2")
    assert found["password_file"] == "bridge-cloud.password"
    assert made.secrets == {"bridge-cloud.password": "hunter2"}
    assert "hunter2" not in repr(made.settings) + " ".join(map(str, made.answers))


@pytest.mark.parametrize("name", ["../../outside", "a/b", "a b"])
def test_a_name_that_is_a_path_writes_no_file_elsewhere(tmp_path: Path, name: str, veilmq: Any) -> None:
    path = tmp_path / "mosquitto.conf"
    path.write_text(f"connection {name}\n{WHOLE}remote_username u\nremote_password hunter2\n")
    veilmq("import", path, "-o", tmp_path / "a" / "b" / "new")
    written = [each for each in tmp_path.rglob("*") if each.is_file() and each != path]
    assert all(tmp_path / "a" / "b" / "new" in each.parents for each in written), written
    assert not any(b"hunter2" in each.read_bytes() for each in written if each.suffix != ".password")


def test_two_connections_of_one_name_are_not_dropped_in_silence(tmp_path: Path) -> None:
    path = tmp_path / "mosquitto.conf"
    path.write_text("connection c\naddress a\ntopic x\nconnection c\naddress b\ntopic y\n")
    with pytest.raises(ConfError, match=r"conf:4: connection c is there twice; rename one"):
        translate(read_conf(path))


@pytest.mark.parametrize(
    ("words", "found"),
    [
        ("a.example", ["a.example:1883"]),
        ("a.example:8883 b.example", ["a.example:8883", "b.example:1883"]),
        ("[::1]:1884", ["[::1]:1884"]),
        ("a.example:x", ["a.example:x:1883"]),
    ],
)
def test_addresses_get_mosquittos_port(tmp_path: Path, words: str, found: list[str]) -> None:
    assert bridged(tmp_path, f"addresses {words}\ntopic x")[0]["addresses"] == found


@pytest.mark.parametrize(
    ("line", "local", "remote", "direction", "qos"),
    [
        ("topic a/#", "a/#", "a/#", "out", 0),
        ("topic a/# both 2", "a/#", "a/#", "both", 2),
        ("topic # in 1 here/ there/", "here/#", "there/#", "in", 1),
        ('topic # out 1 "" there/', "#", "there/#", "out", 1),
        ('topic "" out 0 a/b/x q/x', "a/b/x", "q/x", "out", 0),
    ],
)
def test_topics_keep_their_names_on_both_sides(
    tmp_path: Path, line: str, local: str, remote: str, direction: str, qos: int
) -> None:
    (topic,) = bridged(tmp_path, f"address a\n{line}")[0]["topics"]
    read = BridgeTopic.model_validate(topic)
    assert (read.local, read.remote, read.direction, read.qos) == (local, remote, direction, qos)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("topic a sideways", "is no topic of a bridge"),
        ("topic a out 3", "is no topic of a bridge"),
        ('topic "" out 0 a/b c/d', "no level in common"),
    ],
)
def test_a_topic_that_cannot_be_is_refused(tmp_path: Path, line: str, said: str) -> None:
    _, made = bridged(tmp_path, f"address a\ntopic x\n{line}")
    assert said in made.refusals[0].text


@pytest.mark.parametrize(("line", "said"), [("topic x", "has no address"), ("address a", "has no topic")])
def test_a_bridge_that_crosses_nothing_is_one_line(tmp_path: Path, line: str, said: str) -> None:
    with pytest.raises(ConfError, match=said):
        bridged(tmp_path, line)


def test_the_other_broker_knows_the_bridge_again(tmp_path: Path) -> None:
    """Mosquitto's own default; else the session there, with what waits in it, would be nobody's."""
    found, made = bridged(tmp_path, WHOLE)
    assert found["client_id"] == f"{socket.gethostname()}.cloud"
    assert made.local_sessions == {f"local.{socket.gethostname()}.cloud": "cloud"}
    assert bridged(tmp_path, f"{WHOLE}local_clientid l\n")[1].local_sessions == {"l": "cloud"}
    assert bridged(tmp_path, f"{WHOLE}cleansession true\n")[1].local_sessions == {}


LEVELS = st.lists(st.sampled_from(["a", "b", "plant"]), max_size=4)


@given(LEVELS, LEVELS)
def test_two_names_are_prefixes_and_what_they_have_in_common(ours: list[str], theirs: list[str]) -> None:
    local, remote = "/".join(ours), "/".join(theirs)
    common, prefix, other = _split_names(local, remote)
    if common:
        assert (prefix + common, other + common) == (local, remote)
    else:
        assert not local or not remote or ours[-1:] != theirs[-1:]
