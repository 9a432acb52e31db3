"""Programs that are traced or track: where they connect, how, and what is said of a connection that fails."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gateway.tracing.client import _address, address, connection
from gateway.trust import TrustError


@pytest.mark.parametrize(("text", "found"), [
    ("127.0.0.1:1883", ("127.0.0.1", 1883)), ("[::1]:8883", ("::1", 8883)), ("host:65535", ("host", 65535)),
])  # fmt: skip
def test_an_address_is_host_and_port(text: str, found: tuple[str, int]) -> None:
    assert address(text) == found


@pytest.mark.parametrize("text", ["host", ":1883", "host:", "host:0", "host:65536", "host:x", "host:-1", ""])
def test_what_is_no_address_says_how_to_write_one(text: str) -> None:
    with pytest.raises(TrustError, match="write it like"):
        address(text)


@pytest.mark.parametrize(("given", "found"), [
    ("host", ("host", 1883)), ("host:99", ("host", 99)), ("[::1]", ("::1", 1883)), (("host", 5), ("host", 5)),
])  # fmt: skip
def test_without_a_port_the_usual_one_is_taken(given: Any, found: tuple[str, int]) -> None:
    assert _address(given, 1883) == found


class Paho:
    def __init__(self) -> None:
        self.login: tuple[Any, ...] = ()
        self.tls: str | None = None

    def username_pw_set(self, *login: Any) -> None:
        self.login = login

    def tls_set(self, cafile: str) -> None:
        self.tls = cafile


def private(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    path.chmod(0o600)
    return path


def test_who_names_a_user_logs_in_with_the_password_of_its_file(tmp_path: Path) -> None:
    client = Paho()
    connection("ann", private(tmp_path / "pw", b"secret\n"))(client)  # type: ignore[arg-type]
    assert (client.login, client.tls) == (("ann", "secret"), None)
    plain = Paho()
    connection()(plain)  # type: ignore[arg-type]
    assert (plain.login, plain.tls) == ((), None)


def test_files_that_are_no_use_are_refused_before_anything_connects(tmp_path: Path) -> None:
    with pytest.raises(TrustError, match="holds no text"):
        connection("ann", private(tmp_path / "pw", b"\xff\xfe"))
    with pytest.raises(TrustError, match="no such file"):
        connection(cafile=tmp_path / "absent.pem")
    with pytest.raises(TrustError, match="is no authority"):
        connection(cafile=private(tmp_path / "ca.pem", b"nothing"))
