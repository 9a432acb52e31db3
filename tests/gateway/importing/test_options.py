"""The table of Mosquitto's options: whole, and no line of a configuration without an answer."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from gateway.importing import read_conf, translate
from gateway.importing.options import OF_PLUGIN, OPTIONS, OptionPlace, Outcome, option_of

READ_BY_MOSQUITTO = re.findall(
    r"\S+",
    """
accept_protocol_versions acl_file address addresses allow_anonymous allow_duplicate_messages
allow_zero_length_clientid auth_opt_x auth_plugin auth_plugin_deny_special_chars auto_id_prefix autosave_interval
autosave_on_changes bind_address bind_interface bridge_alpn bridge_attempt_unsubscribe bridge_bind_address
bridge_cafile bridge_capath bridge_certfile bridge_ciphers bridge_ciphers_tls1.3 bridge_identity bridge_insecure
bridge_keyfile bridge_max_packet_size bridge_max_topic_alias bridge_outgoing_retain bridge_protocol_version
bridge_psk bridge_receive_maximum bridge_reload_type bridge_require_ocsp bridge_session_expiry_interval
bridge_tcp_keepalive bridge_tcp_user_timeout bridge_tls_use_os_certs bridge_tls_version cafile capath certfile
check_retain_source ciphers ciphers_tls1.3 cleansession clientid clientid_prefixes connection connection_messages
crlfile dhparamfile disable_client_cert_date_checks enable_control_api enable_proxy_protocol global_max_clients
global_max_connections global_plugin http_dir idle_timeout include_dir keepalive_interval keyfile listener
listener_allow_anonymous listener_auto_id_prefix local_cleansession local_clientid local_password local_username
log_dest log_facility log_timestamp log_timestamp_format log_type max_connections max_inflight_bytes
max_inflight_messages max_keepalive max_packet_size max_qos max_queued_bytes max_queued_messages max_topic_alias
max_topic_alias_broker maximum_qos memory_limit message_size_limit mount_point notification_topic notifications
notifications_local_only packet_buffer_size password password_file per_listener_settings persistence
persistence_file persistence_location persistent_client_expiration pid_file plugin plugin_load plugin_opt_x
plugin_use port protocol proxy_protocol_v2_require_tls psk_file psk_hint queue_qos0_messages remote_clientid
remote_password remote_username require_certificate restart_timeout retain_available retain_expiry_interval
retained_persistence retry_interval round_robin set_tcp_nodelay socket_domain start_type sys_interval threshold
tls_engine tls_engine_kpass_sha1 tls_keyform tls_version topic try_private upgrade_outgoing_qos
use_identity_as_username use_subject_as_username use_username_as_clientid user username websockets_headers_size
websockets_log_level websockets_origin
""",
)
"""Every option that the configuration readers of Mosquitto 2.0.11 and 2.1.2 compare a line with."""
VALUES = {
    "address": "h:1", "addresses": "h:1", "listener": "1884 127.0.0.1", "connection": "d", "topic": "t", "port": "1885",
    "bridge_protocol_version": "mqttv50", "protocol": "mqtt", "persistent_client_expiration": "2d",
    "plugin_load": "n /x.so", "plugin_use": "n", "include_dir": "{}", "socket_domain": "ipv4", "bridge_cafile": "ca",
    "bridge_capath": "ca", "certfile": "c", "keyfile": "k", "cafile": "ca", "capath": "ca", "bind_address": "localhost",
}  # fmt: skip


def conf_of(tmp_path: Path, name: str) -> str:
    """A configuration in which the option stands where it may."""
    number = name.startswith(("max", "sys_", "message_size", "global_max")) or name in (
        "keepalive_interval", "bridge_session_expiry_interval", "bridge_max_packet_size",
    )  # fmt: skip
    line = f"{name} {VALUES.get(name, '5' if number else 'true').format(tmp_path / 'more')}\n"
    option = option_of(name)
    assert option is not None, name
    before = "plugin /p.so\n" if name.startswith(OF_PLUGIN) else "plugin_load n /p.so\n" if name == "plugin_use" else ""
    if name == "connection":
        line += "address h\ntopic t\n"
    whole = "" if name in ("address", "addresses") else "address a\n"
    bridge = f"connection c\n{whole}topic x\n{line if option.place is OptionPlace.BRIDGE else ''}"
    return f"{before}listener 1886\n{line if option.place is not OptionPlace.BRIDGE else ''}{bridge}"


@pytest.mark.parametrize("name", READ_BY_MOSQUITTO)
def test_every_option_is_answered(tmp_path: Path, name: str) -> None:
    (tmp_path / "more").mkdir()
    path = tmp_path / "mosquitto.conf"
    path.write_text(conf_of(tmp_path, name))
    answers = [one for one in translate(read_conf(path)).answers if one.name == name]
    assert answers
    option = option_of(name)
    assert option is not None
    if option.outcome is Outcome.REFUSED and "true" not in option.like_ours:
        assert all(one.outcome is Outcome.REFUSED and "; " in one.text for one in answers), "cause and cure"


def test_the_table_holds_what_mosquitto_reads_and_no_more() -> None:
    assert set(OPTIONS) == {name for name in READ_BY_MOSQUITTO if not name.startswith(OF_PLUGIN)}


def test_the_manual_of_the_mosquitto_that_is_here_names_no_other() -> None:
    page = Path("/usr/share/doc/mosquitto/examples/mosquitto.conf.gz")
    page = page if page.exists() else page.with_suffix("")
    if not page.exists() or shutil.which("zcat") is None:
        pytest.skip("Mosquitto's example configuration is not here")
    text = subprocess.run(["zcat", "-f", str(page)], capture_output=True, text=True, check=True).stdout
    words = {line[1:].split()[0] for line in text.splitlines() if line.startswith("#") and line[1:2].isalpha()}
    assert len(words) >= 70
    assert not words - set(READ_BY_MOSQUITTO)


def test_an_option_that_mosquitto_does_not_know_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "mosquitto.conf"
    path.write_text("listener 1\nrequire_certficate true\n")
    (refused,) = translate(read_conf(path)).refusals
    assert (refused.name, refused.where) == ("require_certficate", f"{path}:2")


@pytest.mark.parametrize(
    "line",
    [
        "use_username_as_clientid true", "use_identity_as_username true", "use_subject_as_username true", "crlfile c",
        "mount_point x/", "psk_hint h", "ciphers HIGH", "ciphers_tls1.3 x", "tls_version tlsv1.3", "bind_interface e",
        "tls_engine e", "tls_keyform engine", "accept_protocol_versions 5", "clientid_prefixes dev-",
        "allow_zero_length_clientid false", "plugin /usr/lib/other.so", "proxy_protocol_v2_require_tls true",
        "connection c\naddress a\ntopic t\nbridge_psk 00", "connection c\naddress a\ntopic t\nbridge_identity i",
        "connection c\naddress a\ntopic t\nbridge_require_ocsp true", "cafile ca", "require_certificate true",
        "connection c\naddress a\ntopic t\nbridge_tls_version tlsv1.3",
        "connection c\naddress a\ntopic t\nbridge_ciphers HIGH",
    ],
)  # fmt: skip
def test_what_protects_and_has_no_counterpart_stops_the_import(tmp_path: Path, line: str) -> None:
    path = tmp_path / "mosquitto.conf"
    path.write_text(f"listener 1\nallow_anonymous true\n{line}\n")
    assert translate(read_conf(path)).refusals


@pytest.mark.parametrize(
    "line",
    [
        "use_username_as_clientid false", "tls_version tlsv1.2", "tls_keyform pem", "accept_protocol_versions 3, 4, 5",
        "allow_zero_length_clientid true", "max_qos 2", "proxy_protocol_v2_require_tls false",
        "connection c\naddress a\ntopic t\nbridge_require_ocsp 0",
    ],
)  # fmt: skip
def test_what_asks_for_what_happens_anyway_stops_nothing(tmp_path: Path, line: str) -> None:
    path = tmp_path / "mosquitto.conf"
    path.write_text(f"listener 1\nallow_anonymous true\n{line}\n")
    assert not translate(read_conf(path)).refusals
