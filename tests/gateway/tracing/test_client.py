"""Programs that are traced or track: how they connect, and what is said of a connection that fails."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.reasoncodes import ReasonCode

from bridge.traces import Interest
from bridge.tracking import Follow, Unfollow
from gateway.tracing.client import Tracker, connection
from gateway.trust import TrustError
from tests.gateway.traced_site import Site


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


@pytest.mark.parametrize(("kind", "verb"), [(PacketTypes.SUBACK, "subscribe"), (PacketTypes.PUBACK, "publish")])
def test_a_right_that_is_missing_is_said(tmp_path: Path, kind: int, verb: str) -> None:
    tracker = Tracker(Site(tmp_path).credentials("desk"), "127.0.0.1", 1)
    (client,) = tracker._clients

    def answered(code: int) -> None:
        said: Any = ReasonCode(kind, identifier=code)
        if kind == PacketTypes.SUBACK:
            client.on_subscribe(client, None, 1, [said], None)  # type: ignore[misc,call-arg,arg-type]
        else:
            client.on_publish(client, None, 1, said, None)  # type: ignore[misc,call-arg,arg-type]

    answered(0)
    assert tracker.amiss == ()
    answered(0x87)
    assert tracker.amiss == (f"127.0.0.1:1 does not let us {verb}: Not authorized",)


def test_an_interest_changes_and_ends(tmp_path: Path) -> None:
    tracker = Tracker(Site(tmp_path).credentials("desk"), "127.0.0.1", 1)
    done: list[object] = []
    tracker._tracker.handle = lambda event, now: done.append(event) or []  # type: ignore[assignment,method-assign]
    tracker.follow("pump-7", Interest.CHANGES)
    tracker.unfollow("pump-7")
    assert done == [Follow("pump-7", Interest.CHANGES), Unfollow("pump-7")]
