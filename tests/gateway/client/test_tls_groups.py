"""Key exchange of links with a peer whose OpenSSL knows X25519MLKEM768 (4.0, in the wheels of `cryptography`).

Python's `ssl` takes the groups of the OpenSSL that Python was built with: from 3.5 on X25519MLKEM768 is preferred.
"""

from __future__ import annotations

import contextlib
import ssl
import time

import pytest
from OpenSSL import SSL

from bridge.document.overlay import Overlay
from gateway.base.figures import LinkFigures, LinkState
from gateway.client.tls import LinkTls, group_of
from tests.support.parties import Parties, signed

HYBRID, CLASSICAL = "X25519MLKEM768", "x25519"
GROUP = HYBRID if ssl.OPENSSL_VERSION_INFO >= (3, 5) else CLASSICAL
"""The group that our side agrees to."""
LEAST = (3, 5)
"""The version of OpenSSL that brought X25519MLKEM768."""


class Said:
    """Stands in for an `ssl.SSLObject` of Python 3.15, which answers after a handshake."""

    def __init__(self, group: str | None) -> None:
        self._group = group

    def group(self) -> str | None:
        return self._group


def test_the_group_of_a_connection_is_told_where_python_can_say_it() -> None:
    assert group_of(Said(HYBRID)) == HYBRID
    assert group_of(Said(None)) == ""
    assert group_of(None) == ""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    near = context.wrap_bio(ssl.MemoryBIO(), ssl.MemoryBIO(), server_hostname="a")
    if not hasattr(near, "group"):
        assert group_of(near) == ""
    state = LinkState("r1", True, True, 0, 0, LinkFigures(tls_group=group_of(Said(HYBRID))))
    assert state.to_dict()["tls_group"] == HYBRID
    assert "tls_group" not in LinkState("r1", True, True, 0, 0, LinkFigures()).to_dict()


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Parties:
    return signed(tmp_path_factory.mktemp("groups"), time.time())


@pytest.fixture(scope="module")
def overlay(world: Parties) -> Overlay:
    return world.sign().overlay


def peer(world: Parties, name: str) -> SSL.Context:
    """The other end with a member's certificate, and the groups that OpenSSL 4.0 has by itself."""
    local = world.local(name)
    context = SSL.Context(SSL.TLS_METHOD)
    context.set_min_proto_version(SSL.TLS1_3_VERSION)
    context.use_certificate_file(str(local.cert))
    context.use_privatekey_file(str(local.key_path))
    return context


def shaken(ours: ssl.SSLContext, theirs: SSL.Connection, *, we_serve: bool) -> ssl.SSLObject:
    """Both ends through memory, until they are connected."""
    in_memory, out_memory = ssl.MemoryBIO(), ssl.MemoryBIO()
    near = ours.wrap_bio(in_memory, out_memory, server_side=we_serve)
    (theirs.set_connect_state if we_serve else theirs.set_accept_state)()
    for _ in range(6):
        for do in (near.do_handshake, theirs.do_handshake):
            with contextlib.suppress(ssl.SSLWantReadError, SSL.WantReadError):
                do()
            if out := out_memory.read():
                theirs.bio_write(out)
            try:
                in_memory.write(theirs.bio_read(1 << 16))
            except SSL.WantReadError:
                continue
    return near


@pytest.mark.parametrize("we_serve", [True, False])
def test_a_peer_that_prefers_the_hybrid_group_gets_it_where_our_openssl_has_it(
    world: Parties, overlay: Overlay, we_serve: bool
) -> None:
    assert LEAST[0] << 28 | LEAST[1] << 20 <= SSL.OPENSSL_VERSION_NUMBER
    local = world.local("r1")
    ours = LinkTls("r1", local.cert, local.key_path, overlay.members)
    theirs = SSL.Connection(peer(world, "g1"), None)
    near = shaken(ours.server if we_serve else ours.client, theirs, we_serve=we_serve)
    assert near.version() == "TLSv1.3"
    assert ours.recognise(near.getpeercert(binary_form=True)) == "g1"
    assert theirs.get_group_name() == GROUP


def test_two_peers_of_that_openssl_take_the_hybrid_group_by_themselves(world: Parties) -> None:
    """What a link has once Python has such an OpenSSL: nothing is to be configured, so that nothing is."""
    near, far = SSL.Connection(peer(world, "r1"), None), SSL.Connection(peer(world, "g1"), None)
    near.set_connect_state()
    far.set_accept_state()
    for _ in range(4):
        for one, other in ((near, far), (far, near)):
            with contextlib.suppress(SSL.WantReadError):
                one.do_handshake()
            try:
                other.bio_write(one.bio_read(1 << 16))
            except SSL.WantReadError:
                continue
    assert near.get_group_name() == far.get_group_name() == HYBRID
