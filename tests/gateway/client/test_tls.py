"""Only members of the signed overlay get through a link's TLS, and each is who its key says it is."""

from __future__ import annotations

import asyncio
import ssl
import time
from dataclasses import replace
from pathlib import Path

import pytest

from bridge.document.overlay import Member, Overlay
from gateway.client.tls import LinkTls, TlsError, explain
from gateway.trust.domains import LocalIdentity, TrustDomain
from gateway.trust.overlay_file import load_overlay
from keys.identity import Role
from tests.support.parties import HOSTS, Parties, signed


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Parties:
    return signed(tmp_path_factory.mktemp("world"), time.time())


@pytest.fixture(scope="module")
def overlay(world: Parties) -> Overlay:
    return load_overlay(world.out, int(world.now * 1000))


def links(world: Parties, overlay: Overlay, name: str) -> LinkTls:
    local = LocalIdentity.load(world.directory / name)
    return LinkTls(name, local.cert, local.key_path, overlay.members)


def files(world: Parties, name: str) -> tuple[Path, Path]:
    local = LocalIdentity.load(world.directory / name)
    return local.cert, local.key_path


async def shake_hands(
    server: LinkTls, client_context: ssl.SSLContext, client: LinkTls | None = None
) -> tuple[str | None, str | None]:
    """(name that the server recognises, name that the client recognises). Raises what the client sees."""
    seen: asyncio.Future[str | None] = asyncio.get_running_loop().create_future()

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        seen.set_result(server.peer_name(writer.transport))
        writer.write(b"!")
        await writer.drain()
        writer.close()

    listener = await asyncio.start_server(accept, "127.0.0.1", 0, ssl=server.server)
    try:
        port = listener.sockets[0].getsockname()[1]
        reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=client_context)
        try:
            shown = client.peer_name(writer.transport) if client else None
            await reader.readexactly(1)  # with TLS 1.3 a refusal arrives only here
        finally:
            writer.close()
        return await seen, shown
    finally:
        listener.close()


def test_members_recognise_each_other_across_trust_domains(world: Parties, overlay: Overlay) -> None:
    replica, gateway = links(world, overlay, "r1"), links(world, overlay, "g1")
    assert asyncio.run(shake_hands(replica, gateway.client, gateway)) == ("g1", "r1")


def test_a_client_without_certificate_is_refused(world: Parties, overlay: Overlay) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with pytest.raises((ssl.SSLError, OSError, asyncio.IncompleteReadError)):
        asyncio.run(shake_hands(links(world, overlay, "r1"), context))


def test_a_certificate_of_a_strange_authority_is_refused(world: Parties, overlay: Overlay, tmp_path: Path) -> None:
    """Attack: a domain that the overlay does not list issues a certificate with a member's name."""
    stranger = TrustDomain.create(tmp_path / "stranger", "party1", time.time())
    fake = stranger.issue("g1", Role.GATEWAY, HOSTS, tmp_path / "g1", time.time())
    context = links(world, overlay, "g1").client
    context.load_cert_chain(fake.cert, fake.key_path)
    with pytest.raises((ssl.SSLError, OSError, asyncio.IncompleteReadError)):
        asyncio.run(shake_hands(links(world, overlay, "r1"), context))


def test_a_listed_authority_cannot_make_members(world: Parties, overlay: Overlay, tmp_path: Path) -> None:
    """Attack: party 2, whose authority is trusted, issues itself a certificate that names party 1's replica."""
    party2 = TrustDomain.load(world.directory / "party2")
    fake = party2.issue("r1", Role.REPLICA, HOSTS, tmp_path / "r1", time.time())
    context = links(world, overlay, "g1").client
    context.load_cert_chain(fake.cert, fake.key_path)
    recognised, _ = asyncio.run(shake_hands(links(world, overlay, "r3"), context))
    assert recognised is None


def test_nothing_below_tls_1_3(world: Parties, overlay: Overlay) -> None:
    context = links(world, overlay, "g1").client
    context.minimum_version, context.maximum_version = ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_2
    with pytest.raises((ssl.SSLError, OSError)):
        asyncio.run(shake_hands(links(world, overlay, "r1"), context))


def test_recognise_is_not_fooled_by_junk(world: Parties, overlay: Overlay) -> None:
    tls = links(world, overlay, "g1")
    assert tls.recognise(None) is None
    assert tls.recognise(b"") is None
    assert tls.recognise(b"\x30\x03\x02\x01\x01") is None


def test_a_context_is_refused_in_one_line(world: Parties, overlay: Overlay, tmp_path: Path) -> None:
    r1, r2 = (LocalIdentity.load(world.directory / name) for name in ("r1", "r2"))
    loose = tmp_path / "key.pem"
    loose.write_bytes(r1.key_path.read_bytes())
    loose.chmod(0o644)
    for name, cert, key, says in [
        ("r1", r1.cert, loose, "chmod 600"),
        ("r1", r2.cert, r2.key_path, "not the certificate of r1"),
        ("r1", r1.cert, r2.key_path, "not a certificate and its key"),
        ("r1", tmp_path / "none.pem", r1.key_path, "no such file"),
        ("nobody", r1.cert, r1.key_path, "no member of the overlay"),
    ]:
        with pytest.raises(TlsError, match=says) as caught:
            LinkTls(name, cert, key, overlay.members)
        assert "\n" not in str(caught.value)


def test_failures_are_explained_in_one_line(world: Parties, overlay: Overlay, tmp_path: Path) -> None:
    stranger = TrustDomain.create(tmp_path / "stranger", "stranger", time.time())
    fake = stranger.issue("r1", Role.REPLICA, HOSTS, tmp_path / "r1", time.time())
    server = links(world, overlay, "r1")
    server.server.load_cert_chain(fake.cert, fake.key_path)
    with pytest.raises(ssl.SSLCertVerificationError) as caught:
        asyncio.run(shake_hands(server, links(world, overlay, "g1").client))
    assert "no trust domain of the overlay issued" in explain(caught.value, "r1:8883")
    assert "does not answer" in explain(TimeoutError(), "r1:8883")
    assert "Connection refused" in explain(ConnectionRefusedError(111, "Connection refused"), "r1:8883")


# ------------------------------------------------------------------------------------------ while it runs


def without(overlay: Overlay, *names: str) -> dict[str, Member]:
    return {name: member for name, member in overlay.members.items() if name not in names}


@pytest.mark.long
def test_a_member_that_is_dropped_is_not_recognised_and_one_that_comes_is(world: Parties, overlay: Overlay) -> None:
    """Party 2's authority is unknown to the contexts at first: they learn it while they are in use."""
    server, client = links(world, overlay, "g1"), links(world, overlay, "r2")
    fresh = LinkTls("g1", *files(world, "g1"), without(overlay, "r2"))
    with pytest.raises((ssl.SSLError, OSError, asyncio.IncompleteReadError)):
        asyncio.run(shake_hands(fresh, client.client))
    fresh.trust(overlay.members)
    assert asyncio.run(shake_hands(fresh, client.client, client)) == ("r2", "g1")
    server.trust(without(overlay, "r2"))
    recognised, _ = asyncio.run(shake_hands(server, client.client))
    assert recognised is None


def test_a_rotated_key_is_shown_from_the_next_handshake_on_and_the_former_one_counts_to_its_end(
    world: Parties, overlay: Overlay, tmp_path: Path
) -> None:
    owner = TrustDomain.load(world.owner)
    local = owner.issue("g1", Role.GATEWAY, HOSTS, tmp_path / "g1", world.now)
    old = overlay.members["g1"].certificate
    ends_ms = int(world.now * 1000) + 60_000
    certificate = replace(old, public_key=local.identity.public_bytes)
    member = replace(overlay.members["g1"], certificate=certificate, before=replace(old, not_after_ms=ends_ms))
    now = [world.now]
    server = LinkTls("r1", *files(world, "r1"), overlay.members, lambda: now[0])
    before = links(world, overlay, "g1")
    rotating = links(world, overlay, "g1")
    with pytest.raises(TlsError, match="not the certificate of g1"):
        rotating.show(local.cert, local.key_path)  # the overlay does not list it yet
    assert asyncio.run(shake_hands(server, rotating.client))[0] == "g1"
    for tls in (server, rotating):
        tls.trust({**overlay.members, "g1": member})
    rotating.show(local.cert, local.key_path)
    assert asyncio.run(shake_hands(server, rotating.client))[0] == "g1"
    assert asyncio.run(shake_hands(server, before.client))[0] == "g1"
    now[0] += 61
    assert asyncio.run(shake_hands(server, rotating.client))[0] == "g1"
    assert asyncio.run(shake_hands(server, before.client))[0] is None


def test_an_authority_that_cannot_be_read_changes_nothing(world: Parties, overlay: Overlay) -> None:
    tls, client = links(world, overlay, "r1"), links(world, overlay, "g1")
    broken = {"g1": replace(overlay.members["g1"], ca=b"no certificate")}
    with pytest.raises(TlsError, match="an authority that cannot be read"):
        tls.trust(broken)
    assert asyncio.run(shake_hands(tls, client.client))[0] == "g1"
