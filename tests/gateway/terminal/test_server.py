"""The client of a command: who it is, how it says that it is refused, and that it comes back."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from gateway.mqtt5.packets import Version
from gateway.terminal import Server, TerminalError, TlsFiles, password_of
from tests.gateway.certificates import Authority
from tests.gateway.harness import on_loop, serving
from tests.waits import until


@on_loop
@pytest.mark.parametrize("version", [Version.V5, Version.V311])
async def test_a_refused_login_is_one_line_with_code_and_cure(version: Version) -> None:
    async with serving({"allow_anonymous": False}) as broker:
        with pytest.raises(TerminalError, match=r"refused the connection: .*\(0x8[67]\); give --username") as caught:
            await Server(port=broker.port(), version=version).client().begin_session()
        assert "\n" not in str(caught.value)


@pytest.mark.long
@on_loop
async def test_a_listener_of_tls_asked_in_clear_and_the_reverse(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    certfile, keyfile = authority.issue("server")
    tls = {"bind": "127.0.0.1:0", "ssl": True, "certfile": str(certfile), "keyfile": str(keyfile)}
    async with serving({"listeners": {"default": tls}}) as broker:
        with pytest.raises(TerminalError, match="TLS"):
            await Server(port=broker.port()).client().begin_session()
        with pytest.raises(TerminalError, match=r"not trusted .*; give --cafile"):
            await Server(port=broker.port(), tls=TlsFiles(wanted=True).context()).client().begin_session()
        trusted = TlsFiles(cafile=authority.cafile).context()
        with pytest.raises(TerminalError, match=r"of another name .*; give that name as --host"):
            await Server(port=broker.port(), tls=trusted).client().begin_session()
        any_name = TlsFiles(cafile=authority.cafile, any_name=True).context()
        client = Server(port=broker.port(), tls=any_name).client()
        await client.begin_session()
        await client.end_session()
    async with serving() as broker:
        with pytest.raises(TerminalError, match="leave the TLS options out"):
            await Server(port=broker.port(), tls=TlsFiles(wanted=True).context()).client().begin_session()


def test_files_that_are_no_certificates_are_named(tmp_path: Path) -> None:
    empty = tmp_path / "empty.pem"
    empty.write_text("nothing")
    with pytest.raises(TerminalError, match="go together"):
        TlsFiles(certfile=empty).context()
    with pytest.raises(TerminalError, match="No such file"):
        TlsFiles(cafile=tmp_path / "nowhere").context()
    with pytest.raises(TerminalError, match=r"empty.pem: is no certificate authority"):
        TlsFiles(cafile=empty).context()
    with pytest.raises(TerminalError, match="no certificate with its key"):
        TlsFiles(certfile=empty, keyfile=empty).context()
    assert TlsFiles().context() is None


def test_a_password_comes_from_a_private_file_or_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "password"
    file.write_text("secret\n")
    file.chmod(0o644)
    with pytest.raises(TerminalError, match="chmod 600"):
        password_of(file)
    file.chmod(0o600)
    assert password_of(file) == b"secret"
    assert password_of(None) is None
    monkeypatch.setenv("VEILMQ_PASSWORD", "other")
    assert password_of(None) == b"other"
    assert "secret" not in repr(Server(password=b"secret"))


@on_loop
async def test_a_lost_connection_is_said_once_and_restored(capsys: pytest.CaptureFixture[str]) -> None:
    connected = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.write(b"\x20\x03\x00\x00\x00")
        if not connected.is_set():
            connected.set()
            writer.close()
        else:
            await reader.read(1000)
            await reader.read(1000)
            writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        client = Server(port=server.sockets[0].getsockname()[1]).client(random=lambda: 0.0)
        await client.begin_session()
        await until(lambda: client.losses == 1 and client.connected)
        await client.end_session()
    said = capsys.readouterr().err.splitlines()
    assert [line.endswith(("trying again", "is connected again")) for line in said] == [True, True], said


@on_loop
async def test_the_server_forgets_the_session_of_a_command_that_ended() -> None:
    async with serving() as broker:
        client = Server(port=broker.port(), client_id="c").client()
        await client.begin_session()
        await client.end_session()
        client = Server(port=broker.port(), client_id="c", session_s=60).client()
        await client.begin_session()
        assert not client.session_present
        await client.end_session()
        client = Server(port=broker.port(), client_id="c", session_s=60).client()
        await client.begin_session()
        assert client.session_present
        await client.end_session()
