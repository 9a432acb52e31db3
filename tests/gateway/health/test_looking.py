"""What a process looks at: certificates as they are on disk now, free room, and who is connected."""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.x509.oid import NameOID

from gateway.base.config import parse
from gateway.health.looking import Certificates, certificate_end, look
from gateway.operation.traffic import Traffic

END = datetime(2030, 1, 2, 3, 4, 5, tzinfo=UTC)
SNAPSHOT: Any = SimpleNamespace(clients_connected=3, connections=5, histories=(), traffic=Traffic())


def write(path: Path, end: datetime = END) -> Path:
    key, name = Ed25519PrivateKey.generate(), x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "x")])
    made = (
        x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key()).serial_number(1)
        .not_valid_before(END - timedelta(days=9999)).not_valid_after(end).sign(key, None)
    )  # fmt: skip
    path.write_bytes(made.public_bytes(serialization.Encoding.PEM))
    return path


def test_the_end_of_a_certificate_is_read_from_its_file(tmp_path: Path) -> None:
    assert certificate_end(write(tmp_path / "cert.pem")) == END.timestamp()
    (tmp_path / "cert.pem").write_text("no certificate")
    assert certificate_end(tmp_path / "cert.pem") is None
    assert certificate_end(tmp_path / "absent.pem") is None


def test_a_file_is_read_again_only_when_it_changes(tmp_path: Path) -> None:
    path, certificates = write(tmp_path / "cert.pem"), Certificates()
    os.utime(path, ns=(1, 1))
    assert certificates.end_of(path) == END.timestamp()
    path.write_text("damaged, with the time of before")
    os.utime(path, ns=(1, 1))
    assert certificates.end_of(path) == END.timestamp()
    later = END + timedelta(days=90)
    os.utime(write(path, later), ns=(2, 2))
    assert certificates.end_of(path) == later.timestamp()
    path.unlink()
    assert certificates.end_of(path) is None


def test_a_look_names_every_certificate_that_ends_and_the_room_that_is_left(tmp_path: Path) -> None:
    cert = write(tmp_path / "cert.pem")
    settings = parse({
        "listeners": {
            "default": {"bind": "127.0.0.1:0"},
            "tls": {"bind": "127.0.0.1:0", "ssl": True, "certfile": str(cert), "keyfile": str(cert)},
            "gone": {"bind": "127.0.0.1:0", "ssl": True, "certfile": str(tmp_path / "x"), "keyfile": str(cert)},
        },
        "bridges": {"hq": {
            "addresses": ["127.0.0.1:1"], "topics": [{"filter": "a/#", "direction": "out"}],
            "tls": {"certfile": str(cert), "keyfile": str(cert)},
        }},
        "data": str(tmp_path), "limits": {"connections": 7},
    })  # fmt: skip
    view = look(settings, Certificates(), SNAPSHOT, None, 50.0)
    assert view.ends == {
        f"certificate of listener tls ({cert})": END.timestamp(), f"certificate of bridge hq ({cert})": END.timestamp(),
    }  # fmt: skip
    assert set(view.disk_free) == {str(tmp_path)}
    assert view.disk_free[str(tmp_path)] > 0
    assert (view.now, view.clients, view.connections, view.connections_max) == (50.0, 3, 5, 7)


def test_without_a_data_directory_no_disk_is_looked_at(tmp_path: Path) -> None:
    for data in ({}, {"data": str(tmp_path / "absent")}):
        settings = parse({"listeners": {"default": {"bind": "127.0.0.1:0"}}, **data})
        assert look(settings, Certificates(), SNAPSHOT, None, 0.0).disk_free == {}
