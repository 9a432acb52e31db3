"""What an operator sees of a configuration: that it loads, or the one line that says why not."""

from __future__ import annotations

from pathlib import Path

import pytest

from gateway.base.config import ConfigError, Settings, load, parse

ACL = "amqtt.plugins.topic_checking.TopicAccessControlListPlugin"
ANONYMOUS = "amqtt.plugins.authentication.AnonymousAuthPlugin"


def write(directory: Path, text: str) -> Path:
    path = directory / "broker.yaml"
    path.write_text(text)
    return path


def test_an_empty_file_is_a_closed_broker_on_loopback(tmp_path: Path) -> None:
    settings = load(write(tmp_path, ""))
    assert settings.listeners["default"].bind == "127.0.0.1:1883"
    assert settings.plugins == {}
    assert not settings.allow_anonymous


def test_an_ordinary_amqtt_yaml_loads(tmp_path: Path) -> None:
    settings = load(
        write(
            tmp_path,
            """
listeners:
  default: {type: tcp, bind: "0.0.0.0:1883", max-connections: 500}
  ws-1: {bind: "127.0.0.1:8080", type: ws}
timeout-disconnect-delay: 2
session_expiry_interval: 3600
plugins:
  - amqtt.plugins.authentication.AnonymousAuthPlugin:
      allow_anonymous: true
  - amqtt.plugins.logging_amqtt.EventLoggerPlugin
""",
        )
    )
    assert settings.listeners["ws-1"].type == "ws"
    assert settings.listeners["ws-1"].max_connections == 500
    assert settings.timeout_disconnect_delay == 2
    assert settings.session_expiry_s == 3600
    assert settings.plugins == {
        ANONYMOUS: {"allow_anonymous": True},
        "amqtt.plugins.logging_amqtt.EventLoggerPlugin": {},
    }


def test_the_old_sections_of_amqtt_become_the_plugins_that_they_name() -> None:
    settings = parse(
        {
            "listeners": {"default": {"type": "tcp", "bind": "0.0.0.0:1883"}},
            "sys_interval": 10,
            "auth": {"allow-anonymous": True, "plugins": ["auth_anonymous"]},
            "topic-check": {"enabled": True, "plugins": ["topic_acl"], "publish-acl": {"u": ["a/#"]}},
        }
    )
    assert settings.plugins[ANONYMOUS] == {"allow_anonymous": True}
    assert settings.plugins[ACL] == {"publish_acl": {"u": ["a/#"]}}
    assert settings.sys_interval == 10  # the broker's own $SYS; amqtt's plugin would make it read every packet twice
    assert "amqtt.plugins.sys.broker.BrokerSysPlugin" not in settings.plugins


def test_paths_are_taken_from_the_directory_of_the_file(tmp_path: Path) -> None:
    settings = load(
        write(
            tmp_path,
            """
listeners:
  default: {bind: ":8883", ssl: true, certfile: tls/c.pem, keyfile: /k.pem}
data: state
overlay: {identity: me, overlay: overlay.bin, protect: [{filter: "plant/#", mode: copies}]}
""",
        )
    )
    assert settings.listeners["default"].certfile == tmp_path / "tls/c.pem"
    assert settings.listeners["default"].keyfile == Path("/k.pem")
    assert settings.data == tmp_path / "state"
    assert settings.overlay is not None
    assert settings.overlay.identity == tmp_path / "me"
    assert settings.overlay.protect[0].mode == "copies"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("listners: {}", ["listners", "did you mean listeners?"]),
        ("limits: {packet_byte: 9}", ["limits.packet_byte", "did you mean packet_bytes?"]),
        ("limits: {packet_bytes: much}", ["limits.packet_bytes", "integer", "much"]),
        ("limits: {in_flight: 0}", ["limits.in_flight", "greater than or equal to 1", "(not 0)"]),
        ("overlay: {identity: x}", ["overlay.overlay", "missing; add it"]),
        ("overlay: {identity: x, overlay: y, outbox_bytes: 10}", ["overlay.outbox_bytes", "65536"]),
        ("overlay: {identity: x, overlay: y, outbox_age_s: -1}", ["overlay.outbox_age_s", "0"]),
        (
            "overlay: {identity: x, overlay: y, protect: [{filter: 'a/#/b'}]}",
            ["overlay.protect.0.filter", "'#' must be the last level", "a/#/b"],
        ),
        ("listeners: {default: {ssl: true}}", ["listeners.default", "certfile and keyfile"]),
        ("listeners: {default: {overlay: true}}", ["listener default", "overlay section"]),
        (
            "listeners: {default: {bind: '127.0.0.1:1883'}, b: {}}",
            ["default and b both bind 127.0.0.1:1883"],
        ),
        ("listeners: {a: {require_client_certificate: true}}", ["listeners.a", "needs ssl: true"]),
        ("limits: {}\nlimits: {}", [":2", "key limits is repeated"]),
        ("a: [", ["not valid YAML"]),
        ("- a", ["top level is not a mapping"]),
        ("plugins: [3]", ["plugins.0"]),
        ("auth: {plugins: [auth_ldap]}", ["auth_ldap", "plugins"]),
    ],
)
def test_a_mistake_gives_one_line_with_file_place_and_cure(tmp_path: Path, text: str, words: list[str]) -> None:
    path = write(tmp_path, text)
    with pytest.raises(ConfigError) as caught:
        load(path)
    line = str(caught.value)
    assert line.startswith(str(path))
    assert "\n" not in line
    for word in words:
        assert word in line


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"nowhere\.yaml: No such file"):
        load(tmp_path / "nowhere.yaml")


def test_every_limit_has_a_default_that_is_valid() -> None:
    assert parse({}) == Settings()


def test_a_key_servers_material_is_taken_from_the_directory_of_the_file(tmp_path: Path) -> None:
    path = write(tmp_path, "overlay: {identity: k1, overlay: o.json, key_server: {material: k1.material}}")
    overlay = load(path).overlay
    assert overlay is not None
    assert overlay.key_server is not None
    assert overlay.key_server.material == tmp_path / "k1.material"
    path = write(tmp_path, "overlay: {identity: k1, overlay: o.json, key_server: {material: k1.material, file: x}}")
    with pytest.raises(ConfigError, match=r"overlay\.key_server\.file: unknown key; known are material"):
        load(path)
