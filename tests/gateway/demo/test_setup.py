"""The demonstration's files: an identity and a configuration for every role, nothing for those whom it is not for."""

from __future__ import annotations

import socket
import time
from pathlib import Path

import pytest

from gateway.base.config import load
from gateway.demo import setup
from gateway.demo.setup import DOMAINS, GATEWAYS, REPLICAS, DemoError, build, free_ports
from gateway.trust.domains import LocalIdentity
from gateway.trust.overlay_file import load_overlay, load_secrets
from keys.material import Material

KEY_SERVERS = setup.KEY_SERVERS


@pytest.fixture(scope="module")
def layout(tmp_path_factory: pytest.TempPathFactory) -> setup.DemoLayout:
    return build(tmp_path_factory.mktemp("demo"), time.time())


def test_every_role_has_a_configuration_that_loads_and_an_identity_of_its_own_domain(layout: setup.DemoLayout) -> None:
    overlay = load_overlay(layout.overlay_path, int(time.time() * 1000))
    assert set(overlay.members) == set(DOMAINS)
    assert {name: member.certificate.domain for name, member in overlay.members.items()} == dict(DOMAINS)
    assert len({overlay.members[name].ca for name in REPLICAS}) == len(REPLICAS)
    assert [view.members for _, view in sorted(overlay.views.items())] == list(setup.REGIONS.values())
    for name in (*REPLICAS, *KEY_SERVERS, *GATEWAYS):
        settings = load(layout.config(name))
        assert settings.overlay is not None
        assert settings.overlay.overlay == layout.overlay_path
        assert (settings.overlay.key_server is not None) == (name in KEY_SERVERS)
        if name not in GATEWAYS:
            assert overlay.members[name].address == settings.listeners["overlay"].bind
            assert settings.listeners["overlay"].overlay


def test_only_those_who_may_read_get_names_and_only_key_servers_what_keys_come_from(layout: setup.DemoLayout) -> None:
    overlay = load_overlay(layout.overlay_path, int(time.time() * 1000))
    assert [name for name, member in overlay.members.items() if member.box] == ["control", "site", "spark"]
    granted, keys = load_secrets(LocalIdentity.load(layout.identity("spark")), overlay)
    assert {secret.clear_filter for secret in granted} == {setup.TELEMETRY, setup.AVAILABILITY}
    assert len(keys) == 0  # they are fetched
    assert "machine" not in layout.overlay_path.read_text()
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
