"""Keys in a token: an owner and members whose key is no file, against SoftHSM; and whatever may be wrong with one."""

from __future__ import annotations

import contextlib
import io
import json
import ssl
import subprocess
import sys
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import pytest
import yaml
from cryptography.hazmat.primitives.serialization import load_pem_private_key
from cryptography.x509 import load_pem_x509_certificate

from gateway import cli
from gateway.trust.domains import KEY_LINE, load_key, load_working_key
from gateway.trust.errors import TrustError
from gateway.trust.tokens import PIN_VARIABLE, TokenUri, token_key
from keys.identity import public_key_of, verify
from keys.sealedbox import seal_box
from tests.softhsm import MODULE, PIN, Token


class World:
    """An owner and a gateway with keys in a token, three replicas with keys in files."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.token = Token(directory / "softhsm")
        self.owner_uri = self.token.make("owner", "01")
        self.ca_uri = self.token.make("ca", "11")
        self.gateway_uri = self.token.make("g1", "02")
        self.said = ""

    def run(self, *command: str | Path, status: int = 0, **environment: str) -> str:
        """Runs a command of veilmq in this process; returns its output."""
        out = io.StringIO()
        with (
            contextlib.chdir(self.directory),
            redirect_stdout(out),
            redirect_stderr(out),
            pytest.MonkeyPatch.context() as m,
        ):
            for name, value in environment.items():
                m.setenv(name, value)
            ended = cli.run([str(each) for each in command])
        said = out.getvalue()
        assert ended == status, said
        assert PIN not in said
        self.said += said
        return said

    def build(self) -> None:
        """Makes identities and signs the overlay."""
        self.run("trust", "init", "owner", "--domain", "acme", "--owner-key", self.owner_uri, "--ca-key", self.ca_uri)
        issue = ("trust", "issue", "owner", "--out")
        self.run(*issue, "g1", "--name", "g1", "--role", "gateway", "--key", self.gateway_uri)
        for place in (1, 2, 3):
            self.run("trust", "init", f"party{place}", "--domain", f"party{place}")
            self.run(
                "trust", "issue", f"party{place}", "--out", f"r{place}", "--name", f"r{place}", "--role", "replica"
            )
        replicas = [{"card": f"r{n}/card.json", "address": f"127.0.0.1:{8880 + n}"} for n in (1, 2, 3)]
        described: dict[str, Any] = {
            "name": "demo",
            "regions": [{"name": "north", "members": replicas}],
            "scopes": [{"filter": "ward/#"}],
            "members": [{"card": "g1/card.json", "region": "north", "publish": ["ward/#"], "read": ["ward/#"]}],
        }
        (self.directory / "overlay.yaml").write_text(yaml.safe_dump(described))
        self.sign()

    def sign(self, *options: str, **how: Any) -> str:
        return self.run("overlay", "sign", "overlay.yaml", "--owner", "owner", "--out", "overlay.json", *options, **how)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """One token for all tests: SoftHSM reads its configuration once in a process."""
    made = World(tmp_path_factory.mktemp("tokens"))
    with pytest.MonkeyPatch.context() as m:
        m.setenv("SOFTHSM2_CONF", str(made.token.conf))
        made.build()
        yield made


@pytest.mark.tools
def test_an_owner_signs_without_its_key_in_a_file(world: World) -> None:
    directory = world.directory
    (line,) = (directory / "owner" / "owner.key").read_bytes().splitlines()
    assert line == KEY_LINE + world.owner_uri.encode()
    world.run("trust", "grant", "overlay.json", "--owner", "owner", "--member", "g1", "--publish", "ward/+/north")
    shown = json.loads(world.run("overlay", "show", "overlay.json", "--json"))
    assert shown["version"] >= 2
    assert shown["owner"] == load_key(directory / "owner" / "owner.key").public_bytes.hex()


@pytest.mark.tools
def test_a_member_shows_a_working_key_that_its_identity_vouches_for(world: World) -> None:
    """Boxes and TLS need keys that leave a token: they come from the file, and the token's key vouches for them."""
    g1 = world.directory / "g1"
    identity = load_key(g1 / "key.pem")
    assert identity.public_bytes == token_key(world.gateway_uri).public_bytes != identity.working_bytes
    der = ssl.PEM_cert_to_DER_cert((g1 / "cert.pem").read_text())
    assert public_key_of(der) == identity.public_bytes
    ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(g1 / "cert.pem", g1 / "key.pem")
    verify(identity.public_bytes, "a domain", b"data", identity.sign("a domain", b"data"))
    card = json.loads((g1 / "card.json").read_text())
    assert card["public_key"] == in_base64(identity.public_bytes)
    box = seal_box(identity.hybrid_bytes, b"content", b"info", bytes(32))
    without = load_working_key(g1 / "key.pem")  # as an executor of Spark, which has no token
    assert without.open_box(box, b"info") == b"content"
    assert without.private_bytes() == identity.private_bytes()
    private = load_pem_private_key((g1 / "key.pem").read_bytes(), None)
    assert private.public_key().public_bytes_raw() != identity.public_bytes  # type: ignore[union-attr]


def in_base64(data: bytes) -> str:
    from keys.frames import to_base64

    return to_base64(data)


@pytest.mark.tools
def test_an_authority_issues_and_renews_without_its_key_in_a_file(world: World) -> None:
    domain = world.directory / "owner"
    (line,) = (domain / "ca.key").read_bytes().splitlines()
    assert line == KEY_LINE + world.ca_uri.encode()
    authority = load_pem_x509_certificate((domain / "ca.pem").read_bytes())
    authority.verify_directly_issued_by(authority)
    load_pem_x509_certificate((world.directory / "g1" / "cert.pem").read_bytes()).verify_directly_issued_by(authority)
    world.run("trust", "renew", "g1", "--domain", "owner")
    load_pem_x509_certificate((world.directory / "g1" / "cert.pem").read_bytes()).verify_directly_issued_by(authority)
    world.run(
        "trust", "issue", "owner", "--out", "lamp", "--name", "lamp", "--role", "entity", "--node", "g1/card.json"
    )
    said = world.run(
        "trust", "init", "one", "--domain", "one", "--owner-key", world.ca_uri, "--ca-key", world.ca_uri, status=2
    )
    assert "owner and authority have one key" in said
    assert not (world.directory / "one").exists()


@pytest.mark.tools
def test_a_member_joins_with_a_key_that_never_was_a_file(world: World) -> None:
    """Attack: the folder is copied. It holds a working key, which signs no card and no publication."""
    uri = world.token.make("g9", "12")
    said = world.run("join", "g9", "--role", "gateway", "--key", uri)
    assert "g9, a gateway" in said
    identity = world.directory / "g9" / "identity"
    lines = (identity / "key.pem").read_bytes().splitlines()
    assert lines[0] == KEY_LINE + uri.encode()
    public = token_key(uri).public_bytes
    assert json.loads((identity / "card.json").read_text())["public_key"] == in_base64(public)
    assert load_working_key(identity / "key.pem").public_bytes != public
    assert PIN.encode() not in b"".join(path.read_bytes() for path in (world.directory / "g9").rglob("*.*"))
    absent = world.token.uri("token=plant;object=absent")
    assert "no such key; make one" in world.run("join", "g10", "--role", "gateway", "--key", absent, status=2)
    assert not (world.directory / "g10").exists(), "a fault leaves no half of a folder"
    shown = world.token.uri("token=plant;object=g9", f"module-path={MODULE}&pin-value={PIN}")
    world.run("join", "g10", "--role", "gateway", "--key", shown, status=2)


@pytest.mark.tools
def test_opening_a_token_leaves_no_error_to_tls(world: World) -> None:
    """SoftHSM leaves an error in OpenSSL's queue, which `ssl` would raise at the next authority that it reads."""
    program = (
        "import ssl, sys; from gateway.trust.tokens import token_key; key = token_key(sys.argv[1]); key.sign(b'data'); "
        "authority = ssl.PEM_cert_to_DER_cert(open('owner/ca.pem').read()); "
        "ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(cadata=authority)"
    )
    command = [sys.executable, "-c", program, world.gateway_uri]
    done = subprocess.run(
        command, cwd=world.directory, env=world.token.environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.tools
def test_a_key_rotates_from_the_token_into_another_of_it(world: World, tmp_path: Path) -> None:
    world.run(
        "trust", "issue", "owner", "--out", tmp_path / "g2", "--name", "g2", "--role", "gateway", "--key",
        world.gateway_uri,
    )  # fmt: skip
    rotate = ("trust", "rotate", tmp_path / "g2", "--domain", "owner", "--key")
    assert "is the present key; make another" in world.run(*rotate, world.gateway_uri, status=2)
    world.run(*rotate, world.token.make("g2-next", "03"))
    card = json.loads((tmp_path / "g2" / "next" / "card.json").read_text())
    assert card["former"] == json.loads((tmp_path / "g2" / "card.json").read_text())["public_key"]


def uris(token: Token) -> dict[str, tuple[str, str]]:
    """Faulty URIs, each with what the line says of it."""
    owner, module = "token=plant;object=owner", f"module-path={MODULE}"
    good = f"{module}&pin-source=file:{token.pin}"
    return {
        "no key": (token.uri("token=plant;object=absent"), "no such key; make one: pkcs11-tool"),
        "no token": (token.uri("token=absent;object=owner"), "no such token; plug it in"),
        "no module": (token.uri(owner, "module-path=/absent.so"), "no such module; install"),
        "not a module": (token.uri(owner, "module-path=/etc/hostname"), "check the token and its module"),
        "two keys": (token.uri("token=plant;object=twice"), "fits 2 keys; add id="),
        "wrong PIN": (token.uri(owner, f"{module}&pin-source=file:{token.directory}/other"), "refuses the PIN"),
        "no PIN file": (token.uri(owner, f"{module}&pin-source=file:/absent"), "/absent: No such file"),
        "no PIN": (token.uri(owner, module), "wants a PIN; add &pin-source=file:PATH, or set"),
        "open PIN file": (token.uri(owner, f"{module}&pin-source={token.directory}/open"), "lets others read"),
        "command": (token.uri(owner, f"{module}&pin-source=%7Cdate"), "a command as pin-source"),
        "PIN in the URI": (token.uri(owner, f"{good}&pin-value={PIN}"), "shows the PIN to others"),
        "PIN without a query": (f"pkcs11:{owner}&pin-value={PIN}", "shows the PIN to others"),
        "another kind": (token.uri("token=plant;object=curve"), "Ed25519"),
        "no object": (token.uri("token=plant"), "names no key; add object="),
        "any token": (token.uri("object=owner"), "names no token; add token="),
        "a public key": (token.uri(f"{owner};type=public"), "names no private key"),
        "unknown": (token.uri(f"{owner};slot=1"), "unknown; known are"),
        "no URI": ("owner", "a key in a token is named by pkcs11:"),
        "bytes": (token.uri("token=plant;object=%ff"), "is not UTF-8"),
    }


@pytest.mark.tools
def test_a_fault_is_one_line_with_its_cure(world: World, tmp_path: Path) -> None:
    token = world.token
    token.make("twice", "07")
    token.make("twice", "08")
    token.make("curve", "09", "EC:prime256v1")
    for name, text, mode in (("other", "0000-plant", 0o600), ("open", PIN, 0o644)):
        (token.directory / name).write_text(text)
        (token.directory / name).chmod(mode)
    faults = uris(token)
    command = [sys.executable, "-c", ALL_FAULTS, *(uri for uri, _ in faults.values())]
    done = subprocess.run(command, env=token.environment, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    assert PIN not in done.stdout
    for (fault, (_, line)), said in zip(faults.items(), done.stdout.splitlines(), strict=True):
        assert line in said, (fault, said)
    said = world.run("trust", "init", tmp_path / "new", "--domain", "new", "--owner-key", faults["no key"][0], status=2)
    assert len(said.splitlines()) == 1, said
    assert not (tmp_path / "new").exists()


ALL_FAULTS = """
import sys
from gateway.trust.errors import TrustError
from gateway.trust.tokens import token_key
for uri in sys.argv[1:]:
    try:
        token_key(uri)
    except TrustError as error:
        print(error)
"""
"""One process for all: each line is what a command would print and end with status 2."""


@pytest.mark.tools
def test_a_refused_pin_is_tried_once(world: World) -> None:
    """Attack: tokens lock themselves after three wrong PINs, and a process opens several keys, or one often."""
    (world.token.directory / "wrong").write_text("0000-wrong")
    (world.token.directory / "wrong").chmod(0o600)
    query = f"module-path={MODULE}&pin-source=file:{world.token.directory}/wrong"
    uris = [world.token.uri(f"token=plant;object={name}", query) for name in ("owner", "g1", "owner")]
    done = subprocess.run(
        [sys.executable, "-c", LOGINS, *uris], env=world.token.environment, capture_output=True, text=True, check=False,
        timeout=60,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["refused"] * 3 + ["1"]


LOGINS = """
import sys
from gateway.trust import tokens
tried = []
pin = tokens.TokenUri.pin
tokens.TokenUri.pin = lambda self: tried.append(self) or pin(self)
for uri in sys.argv[1:]:
    try:
        tokens.token_key(uri)
    except tokens.TrustError as error:
        print("refused" if "refuses the PIN" in str(error) else error)
print(len(tried))
"""


@pytest.mark.tools
def test_the_environment_gives_a_pin_and_an_id_tells_two_keys_apart(world: World, tmp_path: Path) -> None:
    world.token.make("same", "0a")
    world.token.make("same", "0b")
    uri = world.token.uri("token=plant;object=same;id=%0b", f"module-path={MODULE}")
    world.run("trust", "init", tmp_path / "new", "--domain", "new", "--owner-key", uri, **{PIN_VARIABLE: PIN})


@pytest.mark.tools
def test_a_former_owner_key_moves_into_a_token_by_one_line(world: World, tmp_path: Path) -> None:
    """An owner's key can be imported; then the line takes the place of the file's content."""
    world.run("trust", "init", tmp_path / "o", "--domain", "moved")
    key = tmp_path / "o" / "owner.key"
    owner = json.loads(world.run("trust", "show", tmp_path / "o", "--json"))["owner"]
    plain = tmp_path / "plain.pem"
    plain.write_bytes(key.read_bytes())
    done = subprocess.run(
        ["softhsm2-util", "--import", plain, "--token", "plant", "--label", "moved", "--id", "0c", "--pin", PIN],
        env=world.token.environment, capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    if done.returncode:
        pytest.fail(done.stdout + done.stderr)
    key.write_bytes(KEY_LINE + world.token.uri("token=plant;object=moved").encode() + b"\n")
    assert json.loads(world.run("trust", "show", tmp_path / "o", "--json"))["owner"] == owner


@pytest.mark.tools
def test_a_session_that_ended_is_opened_again(world: World) -> None:
    key = token_key(world.gateway_uri)
    assert key._session is not None
    key._session.close()
    signature = key.sign(b"data")
    assert len(signature) == 64


@pytest.mark.tools
def test_a_token_that_is_gone_is_an_error_without_a_secret(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    key = token_key(world.gateway_uri)
    assert key._session is not None
    key._session.close()
    monkeypatch.setattr(key, "_token", lambda: (_ for _ in ()).throw(TrustError("no such token; plug it in")))
    with pytest.raises(TrustError, match="plug it in"):
        key.sign(b"data")
    monkeypatch.undo()
    assert len(key.sign(b"data")) == 64


def test_without_the_library_the_line_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pkcs11", None)
    with pytest.raises(TrustError, match=r"install veilmq\[pkcs11\]"):
        token_key("pkcs11:token=t;object=o?module-path=/m.so")


def test_a_uri_is_read_by_rfc_7512() -> None:
    uri = TokenUri.parse("pkcs11:token=my%20token;serial=12;object=a%3bb;id=%01%ff?module-path=/m.so&pin-source=/p")
    assert uri.of_token == {"token_label": "my token", "token_serial": "12"}
    assert (uri.label, uri.id, uri.module, uri.pin_source) == ("a;b", b"\x01\xff", "/m.so", "/p")
    assert "/p" not in str(uri)
