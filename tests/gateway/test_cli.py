"""The command line as an operator meets it: one line for a mistake, exit status 2, and examples that work."""

from __future__ import annotations

import asyncio
import base64
import json
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from gateway import cli
from gateway.base.config import load
from gateway.overlay.region_client import MqttClient
from gateway.owner.description import read_description
from gateway.trust.domains import TrustDomain
from keys.identity import Role
from keys.material import Material
from tests.support.files import edited

ROOT = Path(__file__).parent.parent.parent
CONFIGS = ROOT / "configs"


def example_commands(*pages: str) -> Sequence[str]:
    """The commands of ours on these pages of docs/how-to."""
    text = "".join((ROOT / "docs" / "how-to" / f"{page}.md").read_text("utf-8") for page in pages)
    blocks = re.findall(r"```sh\n(.*?)```", text, re.DOTALL)
    return [line for block in blocks for line in block.splitlines() if line.startswith("veilmq ")]


@pytest.fixture
def example(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, veilmq: Any) -> Path:
    """The directory after the commands of docs/how-to/fleet.md, on ports of our own."""
    for path in CONFIGS.glob("*.yaml"):
        text = re.sub(r"bind: 127\.0\.0\.1:\d+", "bind: 127.0.0.1:0", path.read_text("utf-8"))
        (tmp_path / path.name).write_text(text)
    monkeypatch.chdir(tmp_path)
    for command in example_commands("fleet"):
        status, _, err = veilmq(*shlex.split(command)[1:])
        assert (status, err) == (0, ""), command
    return tmp_path


def with_key_service(directory: Path, issuer: str = "threshold") -> None:
    """What docs/how-to/key-service.md says: uncomment it, and issue the servers' identities."""
    path = directory / "overlay.yaml"
    text = path.read_text("utf-8")
    start = text.index("# key_service:")
    end = text.index("# When keys change")
    block = re.sub(r"^# ", "", text[start:end], flags=re.MULTILINE).replace("issuer: threshold", f"issuer: {issuer}")
    path.write_text(text[:start] + block + text[end:])
    for place in range(1, 5):
        domain = TrustDomain.create(directory / f"operator{place}", f"operator{place}", time.time())
        domain.issue(f"k{place}", Role.KEY_SERVER, ("127.0.0.1",), directory / f"k{place}", time.time())


def test_every_command_of_the_manual_works(example: Path, veilmq: Any) -> None:
    for command in example_commands("devices", "rights"):
        status, out, err = veilmq(*shlex.split(command)[1:])
        assert (status, err) == (0, ""), command
    assert "protected" in out


@pytest.mark.parametrize("name", ["edge.yaml", "gateway.yaml", "replica.yaml", "keyserver.yaml", "traces.yaml"])
def test_the_configurations_that_we_ship_load(name: str) -> None:
    settings = load(CONFIGS / name)
    assert settings.listeners


def test_the_overlay_that_we_ship_loads() -> None:
    assert read_description(CONFIGS / "overlay.yaml").regions[0].name == "campus"


def test_check_says_where_each_topic_goes(example: Path, veilmq: Any) -> None:
    status, out, err = veilmq(
        "check", "-c", "gateway.yaml", "ward/7/pulse", "public/menu", "kitchen/door", "$SYS/x", "a/#", "--json"
    )
    assert (status, err) == (0, "")
    report = json.loads(out)
    fates = {fate["topic"]: fate for fate in report["topics"]}
    ward = fates["ward/7/pulse"]
    assert (ward["fate"], ward["scope"], ward["mode"]) == ("protected", "ward/#", "copies")
    assert (ward["regions"], ward["tokens"]) == (["campus"], True)
    assert fates["public/menu"]["fate"] == "shared plain"
    assert fates["kitchen/door"]["fate"] == fates["$SYS/x"]["fate"] == "local only"
    assert fates["a/#"]["fate"] == "refused"
    status, out, _ = veilmq("check", "-c", "gateway.yaml", "ward/7/pulse")
    assert status == 0
    assert "protected" in out


def test_check_of_a_replica_and_of_a_plain_broker(example: Path, veilmq: Any) -> None:
    assert veilmq("check", "-c", "replica.yaml")[0] == 0
    status, out, _ = veilmq("check", "-c", "edge.yaml", "x")
    assert status == 0
    assert "local only" in out


OWNER = ("--owner", "owner")
OUT = ("--out", "overlay.json")


def test_a_key_service_from_its_description_to_its_check(example: Path, veilmq: Any) -> None:
    with_key_service(example)
    status, _, err = veilmq("overlay", "sign", "overlay.yaml", *OWNER, *OUT)
    assert (status, "`veilmq trust rekey`" in err) == (2, True)
    status, out, _ = veilmq("trust", "rekey", "overlay.yaml", *OWNER, *OUT)
    assert status == 0
    assert out.count("secret keyserver/k") == 4
    status, out, err = veilmq("check", "-c", "keyserver.yaml")
    assert (status, err) == (0, "")
    assert "key service: threshold of 4, bears 1 that lie" in out
    assert "key material in keyserver/k1.material; the first start takes it in" in out
    (example / "keyserver" / "k1.material").unlink()
    status, _, err = veilmq("check", "-c", "keyserver.yaml")
    assert (status, "none is kept; ask the overlay's owner" in err) == (2, True)
    status, out, err = veilmq("check", "-c", "gateway.yaml", "ward/7/pulse")
    assert (status, err) == (0, "")
    assert "keys of the next from" in out


def test_check_sees_what_will_fail_at_a_key_server(example: Path, veilmq: Any) -> None:
    with_key_service(example)
    veilmq("trust", "rekey", "overlay.yaml", *OWNER, *OUT)
    material = example / "keyserver" / "k1.material"
    material.chmod(0o644)
    assert "chmod 600" in veilmq("check", "-c", "keyserver.yaml")[2]
    material.chmod(0o600)
    material.write_text("nonsense")
    assert "is not key material" in veilmq("check", "-c", "keyserver.yaml")[2]
    replace(example / "keyserver.yaml", "overlay: true", "overlay: false")
    assert "a key server needs a listener with overlay: true" in veilmq("check", "-c", "keyserver.yaml")[2]


def test_revoking_says_when_and_check_warns_of_it(example: Path, veilmq: Any) -> None:
    with_key_service(example)
    veilmq("trust", "rekey", "overlay.yaml", *OWNER, *OUT)
    status, out, _ = veilmq("trust", "revoke", "overlay.json", *OWNER, "--member", "g1", "--read", "ward/#")
    assert status == 0
    moment = re.search(r"end at (\d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC)", out)
    assert moment
    status, out, _ = veilmq("check", "-c", "gateway.yaml")
    assert status == 0
    assert f"warning: the right to read ward/# ends at {moment[1]}" in out
    status, out, _ = veilmq("trust", "revoke", "overlay.json", *OWNER, "--member", "g1", "--now")
    assert "new keys for veilmq/traces/#, ward/#" in out
    status, _, err = veilmq("check", "-c", "gateway.yaml")
    assert (status, "ward/#: we have no right to publish there" in err) == (2, True)


def test_check_says_that_a_rotation_and_new_tokens_are_under_way(example: Path, veilmq: Any) -> None:
    veilmq("trust", "rotate", "g1", "--domain", "owner")
    status, _, _ = veilmq(
        "overlay", "sign", "overlay.yaml", *OWNER, *OUT, "--card", "g1/next/card.json", "--new-tokens"
    )
    assert status == 0
    status, out, err = veilmq("check", "-c", "gateway.yaml", "ward/7/pulse")
    assert (status, err) == (0, "")
    assert "the key of g1 was rotated; the former one counts until" in out
    assert "ward/#: names are hidden anew" in out
    assert "protected" in out


def test_no_command_shows_a_secret_and_no_public_file_holds_one(example: Path, veilmq: Any) -> None:
    with_key_service(example, "chain")
    commands = [
        ("trust", "rekey", "overlay.yaml", *OWNER, *OUT),
        ("trust", "grant", "overlay.json", *OWNER, "--member", "spark", "--publish", "public/#"),
        ("trust", "show", "overlay.json", *OWNER), ("trust", "show", "overlay.json", "--json"),
        ("trust", "show", "owner"), ("trust", "show", "g1", "--json"),
        ("trust", "revoke", "overlay.json", *OWNER, "--member", "spark", "--publish", "public/#", "--now"),
        ("trust", "rotate", "g1", "--domain", "owner"),
        ("trust", "export", "g1", "--out", "g1.pem"), ("trust", "export", "owner", "--out", "owner.pem"),
        ("overlay", "sign", "overlay.yaml", *OWNER, *OUT, "--card", "g1/next/card.json", "--new-tokens"),
        ("overlay", "show", "overlay.json"), ("overlay", "show", "overlay.json", "--json"),
        ("check", "-c", "gateway.yaml", "ward/7/pulse"), ("check", "-c", "keyserver.yaml", "--json"),
    ]  # fmt: skip
    shown = b""
    for command in commands:
        status, out, err = veilmq(*command)
        assert status == 0, (command, err)
        shown += (out + err).encode()
    private = [path for path in example.rglob("*") if path.is_file() and path.stat().st_mode & 0o077 == 0]
    public = [path for path in example.rglob("*") if path.is_file() and path.stat().st_mode & 0o077]
    assert {"root.key", "owner.key", "ca.key", "key.pem", "k1.material"} <= {path.name for path in private}
    secrets = [path.read_bytes() for path in private if path.suffix == ".key" and b"PRIVATE" not in path.read_bytes()]
    pems = [path.read_bytes() for path in private if b"PRIVATE" in path.read_bytes()]
    secrets += [base64.b64decode(b"".join(pem.splitlines()[1:-1]))[-32:] for pem in pems]
    material = Material.decode((example / "keyserver" / "k1.material").read_bytes())
    secrets += [subkey for _, subkey in material.generations[0].subkeys]
    assert len(secrets) > 15
    for content in (shown, *(path.read_bytes() for path in public)):
        for secret in secrets:
            assert secret not in content
            assert secret.hex().encode() not in content
            assert base64.b64encode(secret) not in content
            assert repr(secret)[2:-1].encode() not in content
        assert b"PRIVATE KEY" not in content


def replace(path: Path, old: str, new: str) -> None:
    text = path.read_text("utf-8")
    assert old in text
    path.write_text(text.replace(old, new))


@pytest.mark.parametrize(
    ("file", "old", "new", "says"),
    [
        ("gateway.yaml", "tokens: true", "tokens: false", "tokens is False here, True in the owner's policy"),
        ("gateway.yaml", "filter: ward/#", "filter: kitchen/#", "kitchen/# was granted to us"),
        ("gateway.yaml", "- public/#", "- ward/#", "share_plain: ward/#"),
        ("gateway.yaml", "identity: g1", "identity: nobody", "holds no identity"),
        ("gateway.yaml", "overlay.json", "none.json", "none.json: No such file"),
        ("replica.yaml", "overlay: true", "overlay: false", "a replica needs a listener with overlay: true"),
        ("edge.yaml", "bind: 127.0.0.1:0", "bind: 203.0.113.1:1883", "bind an address of this machine"),
        ("edge.yaml", "packet_bytes: 1048576", "packet_byte: 1", "did you mean packet_bytes?"),
    ],
)
def test_check_finds_a_mistake_and_fails(example: Path, veilmq: Any, file: str, old: str, new: str, says: str) -> None:
    replace(example / file, old, new)
    status, _, err = veilmq("check", "-c", file)
    assert status == 2
    assert says in err
    assert all(line.startswith("veilmq: ") for line in err.splitlines())


def test_check_finds_a_port_in_use(tmp_path: Path, veilmq: Any) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        path = tmp_path / "x.yaml"
        path.write_text(f"listeners: {{default: {{bind: '127.0.0.1:{taken.getsockname()[1]}'}}}}")
        status, out, _ = veilmq("check", "-c", path)
    assert status == 0, "this very member may run"
    assert "warning: listener default: 127.0.0.1" in out
    assert "port is in use, which is well if this member runs; else stop what listens there" in out


def test_check_warns_when_nobody_could_log_in(tmp_path: Path, veilmq: Any) -> None:
    path = tmp_path / "x.yaml"
    path.write_text("listeners: {default: {bind: '127.0.0.1:0'}}")
    status, out, _ = veilmq("check", "-c", path)
    assert status == 0
    assert "warning: no client can log in" in out


def test_show_prints_no_secret(example: Path, veilmq: Any) -> None:
    for command in (["trust", "show", "owner"], ["trust", "show", "g1"], ["overlay", "show", "overlay.json"]):
        _, plain, _ = veilmq(*command)
        status, out, _ = veilmq(*command, "--json")
        assert status == 0
        assert isinstance(json.loads(out), dict)
        for secret in (example / "owner" / "root.key", example / "g1" / "key.pem"):
            content = secret.read_bytes()
            assert content.hex() not in plain + out
            assert content.decode("latin-1").strip() not in plain + out


def test_an_altered_overlay_is_refused(example: Path, veilmq: Any) -> None:
    document = json.loads((example / "overlay.json").read_text())
    body = document["policy"]["body"]
    document["policy"]["body"] = body[:-8] + ("AAAA" if body[-8:-4] != "AAAA" else "BBBB") + body[-4:]
    (example / "overlay.json").write_text(json.dumps(document))
    status, out, err = veilmq("overlay", "show", "overlay.json")
    assert (status, out) == (2, "")
    assert "tampered with" in err


def test_a_scope_whose_regions_are_not_joined_is_said_by_check_and_no_broker_starts(
    example: Path, veilmq: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of an overlay file that an owner signed with an older version."""
    with edited(example / "overlay.yaml") as description:
        spare = {"trusted": True}
        for name in ("mid", "far"):
            TrustDomain.create(example / f"operator-{name}", f"operator-{name}", time.time()).issue(
                name, Role.REPLICA, ("127.0.0.1",), example / name, time.time()
            )
            members = [{"card": f"{name}/card.json", "address": "127.0.0.1:8899"}]
            description["regions"].append({"name": name, "members": members, **spare})
        description["edges"] = [["campus", "mid"], ["mid", "far"]]
        description["scopes"][0]["regions"] = ["campus", "far"]
    arguments = ("overlay", "sign", "overlay.yaml", *OWNER, *OUT)
    status, _, err = veilmq(*arguments)
    assert (status, "not joined" in err, err.count("\n")) == (2, True, 1)
    with monkeypatch.context() as older:
        older.setattr("bridge.document.overlay.unjoined", lambda overlay, tree: "")
        assert veilmq(*arguments)[0] == 0
    status, _, err = veilmq("check", "-c", "gateway.yaml", "ward/7/pulse")
    assert status == 2
    assert "regions campus and far of scope" in err
    status, _, err = veilmq("broker", "-c", "gateway.yaml")
    assert (status, "not joined" in err, err.count("\n")) == (2, True, 1)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["nonsense"], "no such command 'nonsense'"),
        (["trust", "issue", "d"], "missing option"),
        (["trust", "show", "/nonexistent"], "holds no identity"),
        (["trust", "init", "x", "--domain", "no spaces please"], "a trust domain is 1 to 64"),
        (["trust", "issue", "x", "--name", "a", "--role", "king", "--out", "y"], "role king does not exist"),
        (["trust", "grant", "o.json", "--owner", "x", "--member", "a"], "which rights? name them with --publish"),
        (["trust", "grant", "o.json", "--owner", "x", "--member", "a", "--read", "b"], "holds no trust domain"),
        (["trust", "revoke", "o.json", "--owner", "x", "--member", "a"], "holds no trust domain"),
        (["trust", "rotate", "x", "--domain", "y"], "holds no trust domain"),
        (["trust", "rekey", "x.yaml", "--owner", "y", "--out", "z"], "holds no trust domain"),
        (["trust", "export", "x", "--out", "y"], "holds no identity"),
        (["simulate", "nothing", "--figure", "1"], "no experiment nothing; take one of"),
        (["simulate", "eventguard", "--figure", "999"], "no figure 999; take one of"),
        (["simulate", "all"], "say where with --html DIR"),
        (["simulate", "octopis"], "say which figure with --figure N"),
        (["simulate", "octopis", "--figure", "7", "--cost", "x=1"], "no cost x; take one of"),
        (["overlay", "show", "/nonexistent"], "/nonexistent: No such file or directory"),
        (["check", "-c", "/nonexistent"], "/nonexistent: No such file or directory"),
        (["broker", "-c", "/nonexistent"], "/nonexistent: No such file or directory"),
        (["broker", "--bind", "a:b:c"], "write HOST:PORT"),
        (["demo", "--seconds", "many"], "invalid value for '--seconds'"),
    ],
)
def test_a_mistake_is_one_line_and_status_2(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, veilmq: Any, arguments: list[str], says: str
) -> None:
    monkeypatch.chdir(tmp_path)
    status, out, err = veilmq(*arguments)
    assert (status, out) == (2, "")
    assert err.startswith("veilmq: ")
    assert err.count("\n") == 1
    assert says in err


def test_a_private_file_open_to_others_is_refused_with_the_cure(example: Path, veilmq: Any) -> None:
    (example / "owner" / "root.key").chmod(0o644)
    status, _, err = veilmq("overlay", "sign", "overlay.yaml", "--owner", "owner", "--out", "overlay.json")
    assert status == 2
    assert err.rstrip().endswith("chmod 600 owner/root.key")


def test_the_command_line_wins_over_the_file(tmp_path: Path) -> None:
    path = tmp_path / "x.yaml"
    path.write_text("listeners: {default: {bind: '127.0.0.1:1'}, other: {bind: '127.0.0.1:2'}}")
    settings = cli._settings(path, "127.0.0.1:3", tmp_path / "data", True)
    assert settings.listeners["default"].bind == "127.0.0.1:3"
    assert settings.listeners["other"].bind == "127.0.0.1:2"
    assert settings.data == tmp_path / "data"
    assert settings.allow_anonymous
    assert not cli._settings(None, None, None, False).allow_anonymous


def test_one_command_is_a_broker_and_sigterm_ends_it(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    process = subprocess.Popen(
        [sys.executable, "-m", "gateway.cli", "broker", "--bind", f"127.0.0.1:{port}", "--allow-anonymous"],
        cwd=ROOT,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    try:
        for line in process.stderr:
            if "listener default" in line:
                break
        else:
            pytest.fail("the broker did not start")

        def hello(client: MqttClient) -> None:
            client.publish("a/b", b"hello", 1)

        async def round_trip() -> bytes:
            client = MqttClient("127.0.0.1", port)
            got: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
            client.on_publish = lambda publish: got.set_result(publish.payload)
            await client.connect()
            client.subscribe("a/+", on_answer=lambda _: hello(client))
            try:
                return await asyncio.wait_for(got, 10)
            finally:
                await client.close()

        assert asyncio.run(round_trip()) == b"hello"
        process.send_signal(signal.SIGTERM)
        assert process.wait(10) == 0
    finally:
        process.kill()
        process.wait()
        process.stderr.close()


def test_a_reader_that_goes_away_is_no_error() -> None:
    code = "import sys; from gateway.cli import main; sys.argv[1:] = ['--help']; main()"
    head = subprocess.run(
        f"{shlex.quote(sys.executable)} -c {shlex.quote(code)} | {shutil.which('true')}",
        shell=True,
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    assert head.stderr == ""


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (
            PermissionError(13, "Permission denied", "site/identity"),
            "site/identity: Permission denied; correct the path",
        ),
        (IsADirectoryError(21, "Is a directory", "broker.yaml"), "broker.yaml: Is a directory; correct the path"),
        (ModuleNotFoundError("No module named 'pyspark.sql'", name="pyspark.sql"), "pip install 'veilmq[spark]'"),
        (ModuleNotFoundError("No module named 'matplotlib'", name="matplotlib"), "pip install 'veilmq[sim]'"),
    ],
)
def test_no_file_and_no_missing_package_is_a_traceback(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], error: Exception, said: str
) -> None:
    def fails(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(cli, "app", fails)
    assert cli.run(["check"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("veilmq: ")
    assert said in line


@pytest.mark.parametrize("error", [ModuleNotFoundError("keys", name="keys"), OSError("no file of ours"), KeyError("x")])
def test_a_defect_of_ours_is_shown(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    def fails(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(cli, "app", fails)
    with pytest.raises(type(error)):
        cli.run(["check"])
