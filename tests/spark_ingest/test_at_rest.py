"""What lies on the receiver's disk says nothing without the file of scope keys, and that can be sealed to an identity.

The attack: somebody has a copy of the spool, all of it, and knows every public thing: frames, overlay, commitments.
"""

from __future__ import annotations

import base64
import json
import logging
import os
import stat
import time
import zlib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from keys.envelope import KeyHeader, open_key
from keys.errors import KeysError
from keys.identity import Identity
from keys.message import PREFIX_BYTES
from keys.records import Records
from keys.shamir import combine
from keys.sharetree import decode_shares, encode_shares
from keys.topictokens import tokenise_filter
from spark_ingest.errors import GrantsError
from spark_ingest.opening.decode import Opener
from spark_ingest.receiver.receiver import Receiver
from spark_ingest.receiver.recovery import state_of
from spark_ingest.receiving.usable_keys import materials_from_json
from spark_ingest.secrets.grants import GrantsFile, encode_grants, load_readers, read_grants
from spark_ingest.secrets.grants_writer import GrantsWriter
from spark_ingest.secrets.sharebox import ShareBox, ShareOpener
from spark_ingest.spool.segments import read_groups, segment_path
from spark_ingest.spool.view import SpoolView
from spark_ingest.spool.writer import SpooledKey, SpoolWriter
from tests.spark_ingest.receiver.test_receiver import Replicas, settings_in, spooled
from tests.spark_ingest.region import TOKEN_KEY, Link, Overlay, Publisher, Sealed
from tests.waits import wait_until

SECRET = b"the pressure is 4711"
TOPIC = "plant/press-of-mine/temperature"
SPOOL_KEY = bytes(range(32))


class Region(Replicas):
    """Replicas of an overlay whose topic names are hidden."""

    def held_grants(self):  # type: ignore[no-untyped-def]
        return self.directory.held(self.names, token_key=TOKEN_KEY)


def received(root: Path, overlay: Overlay, *sealed: Sealed, **settings: object) -> None:
    """A receiver runs, gets them, and ends; twice, so that there is a state of one that came before."""
    replicas = Region(overlay)
    for part in (sealed[:1], sealed[1:]):
        receiver = Receiver(settings_in(root, incomplete_s=0.5, **settings), lambda: replicas)
        receiver.start()
        before = len(spooled(root))
        for each in part:
            replicas.publish(each)
        assert wait_until(lambda: len(spooled(root)) == before + len(part) and not replicas.unacknowledged)  # noqa: B023
        receiver.stop()
        assert receiver.failure is None


def batches(root: Path) -> Iterator[object]:
    view = SpoolView(root)
    for extent in view.ranges({}, view.advance({}), 1):
        yield from read_groups(extent)


def stolen(root: Path) -> list[bytes]:
    """What a thief of the spool reads: every key header and its shares, put together as any executor would."""

    told: list[SpooledKey] = []
    sealed: list[tuple[bytes, int, str, bytes]] = []
    for batch in batches(root):
        rows = batch.to_pylist()  # type: ignore[attr-defined]
        told += [SpooledKey(row["key_header"], row["shares"]) for row in rows if row["key_header"] is not None]
        sealed += [(row["header"], row["sequence"], row["wire_topic"], row["sealed"]) for row in rows]
    for number in (1, 2):
        path = segment_path(root / "main", number, "state")
        told += materials_from_json(json.loads(zlib.decompress(path.read_bytes()))["keys"])
    found = []
    for material in told:
        try:
            values = {share.label[0].place: share.value for share in decode_shares(material.shares)}
            key = open_key(KeyHeader.decode(material.header), combine(values), None)
            found += [
                Records.decode(key.open(header[:PREFIX_BYTES], sequence, topic, content)).payload(0)
                for header, sequence, topic, content in sealed
            ]
        except KeysError:
            continue
    return found


@pytest.mark.parametrize("keyed", [True, False])
def test_a_stolen_spool_opens_nothing_and_names_nothing(
    tmp_path: Path, keyed: bool, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    root = tmp_path / "spool"
    overlay = Overlay(scopes=(tokenise_filter("plant/#", TOKEN_KEY),))
    overlay.change(keyed=keyed)
    publisher = Publisher(overlay)
    now = time.time()
    sealed = [publisher.seal(TOPIC, SECRET, token_key=TOKEN_KEY, retain=retain, time=now) for retain in (False, True)]
    received(root, overlay, *sealed)
    assert not stolen(root)
    files = [path for path in root.rglob("*") if path.is_file()]
    disk = b"".join(path.read_bytes() for path in files) + b"".join(str(path).encode() for path in files)
    told = disk + caplog.text.encode()
    grants = settings_in(root).grants
    (spool_key,) = read_grants(grants).spool_keys
    shares = [share.value for share in sealed[0].key[2]]  # type: ignore[index]
    secrets = [SECRET, b"press-of-mine", b"temperature", spool_key, TOKEN_KEY, *shares]
    for secret in secrets:
        for form in (
            secret,
            base64.b64encode(secret),
            base64.urlsafe_b64encode(secret).rstrip(b"="),
            secret.hex().encode(),
        ):
            assert form not in told
    # Who has the file of scope keys reads all of it.
    opener = Opener(grants)
    opener.refresh()
    opened = [payload for batch in batches(root) for payload in opener.open(batch).content.payload.to_pylist()]
    assert opened == [SECRET, SECRET]
    for path in (root, *root.rglob("*"), grants):
        assert stat.S_IMODE(path.stat().st_mode) == (0o700 if path.is_dir() else 0o600), path


def test_the_thief_would_read_shares_that_were_not_sealed(tmp_path: Path) -> None:
    """So the attack of the test before this one works, and rows that older receivers wrote in clear stay readable."""
    overlay = Overlay()
    overlay.change(keyed=False)
    link, publisher = Link(overlay), Publisher(overlay)
    writer = SpoolWriter(tmp_path, "main", cap_bytes=1 << 30)
    writer.roll(state_of(link.collector.seen, link.collector.keys()))
    link.publish(publisher.seal("plant/a", SECRET))
    link.write(writer)
    writer.roll(state_of(link.collector.seen, link.collector.keys()))
    writer.close()
    assert SECRET in stolen(tmp_path)


def material(overlay: Overlay | None = None) -> SpooledKey:
    sealed = Publisher(overlay or Overlay()).seal("plant/a")
    assert sealed.key is not None
    return SpooledKey(sealed.key[0].encode(), encode_shares(sealed.key[2][:2]))


def test_sealed_shares_open_under_their_key_beside_their_header_only() -> None:
    plain, other = material(), material(Overlay(scopes=("#",)))
    sealed = ShareBox(SPOOL_KEY, os.urandom).seal(plain)
    assert sealed != ShareBox(SPOOL_KEY, os.urandom).seal(plain), "no nonce serves twice"
    assert ShareOpener((bytes(32), SPOOL_KEY)).open(sealed) == plain
    assert ShareOpener((bytes(32),)).open(sealed) is None
    assert ShareOpener((SPOOL_KEY,)).open(replace(sealed, header=other.header)) is None
    for at in range(len(sealed.shares)):
        altered = sealed.shares[:at] + bytes([sealed.shares[at] ^ 0x80]) + sealed.shares[at + 1 :]
        opened = ShareOpener((SPOOL_KEY,)).open(replace(sealed, shares=altered))
        if opened is not None:  # not marked as sealed any more: no frame of shares begins so
            with pytest.raises(KeysError):
                decode_shares(opened.shares)
        assert ShareOpener((SPOOL_KEY,)).open(replace(sealed, shares=sealed.shares[:at] or b"\0")) is None


def test_without_the_local_key_rows_stay_closed_with_a_reason(tmp_path: Path) -> None:

    root = tmp_path / "spool"
    overlay = Overlay()
    received(root, overlay, *(Publisher(overlay).seal("plant/a", time=time.time()) for _ in range(1)))
    grants = settings_in(root).grants
    grants.write_bytes(encode_grants(read_grants(grants).scopes.values(), bytes(31) + b"x"))
    opener = Opener(grants)
    opener.refresh()
    closed = [reason for batch in batches(root) for _, reason in opener.open(batch).closed]
    assert len(closed) == 1
    assert closed[0].startswith("grant: the file of scope keys lacks the local key")


def identity_in(directory: Path) -> Identity:
    directory.mkdir(mode=0o700)
    identity = Identity.generate(os.urandom(32))
    (directory / "key.pem").touch(0o600)
    (directory / "key.pem").write_bytes(identity.private_pem())
    return identity


def test_a_sealed_file_of_scope_keys_opens_for_its_identity_alone(tmp_path: Path) -> None:
    reader, stranger = identity_in(tmp_path / "job"), identity_in(tmp_path / "stranger")
    overlay, path = Overlay(), tmp_path / "keys.json"
    writer = GrantsWriter(path, 0, (), readers=(reader,), random=os.urandom)
    content = writer.renew_content(overlay.held(), 1, 1)
    assert content is not None
    writer.write(content)
    held = overlay.held()
    for scope in held.scopes.values():
        for key in scope.keys.values():
            assert base64.b64encode(key) not in path.read_bytes()
    assert GrantsFile(path, tmp_path / "job").load()[0].scopes.keys() == held.scopes.keys()
    again = GrantsWriter(path, 0, (), readers=(reader,), random=os.urandom)
    assert again.key_names == writer.key_names
    assert again.spool_key == writer.spool_key
    content = again.renew_content(overlay.held(), 1, 1)
    assert content is not None, "each process seals it anew"
    again.write(content)
    assert again.renew_content(overlay.held(), 1, 1) is None, "nothing changed"
    for read in (
        lambda: GrantsFile(path).load(),
        lambda: GrantsFile(path, tmp_path / "stranger").load(),
        lambda: GrantsFile(path, tmp_path / "nobody").load(),
        lambda: GrantsWriter(path, 0, (), readers=(stranger,), random=os.urandom),
    ):
        with pytest.raises(GrantsError) as caught:
            read()
        assert "\n" not in str(caught.value)


def test_a_file_in_clear_is_sealed_by_the_next_receiver_and_stays_readable_over_a_rotation(tmp_path: Path) -> None:
    overlay, path, job = Overlay(), tmp_path / "keys.json", tmp_path / "job"

    def written(*readers: Identity) -> bytes:
        writer = GrantsWriter(path, 0, (), readers=readers, random=os.urandom)
        content = writer.renew_content(overlay.held(), 1, 1)
        assert content is not None
        writer.write(content)
        return content

    key = next(iter(overlay.held().scopes["plant/#"].keys.values()))
    assert base64.b64encode(key) in written()
    assert base64.b64encode(key) not in written(identity_in(job))
    assert load_readers(job)
    job.rename(tmp_path / "former")
    identity_in(job)
    (tmp_path / "former").rename(job / "previous")
    names = GrantsFile(path, job).load()[0].scopes.keys()
    assert names == overlay.held().scopes.keys()
    written(*load_readers(job))
    (job / "previous" / "key.pem").unlink()
    assert GrantsFile(path, job).load()[0].scopes.keys() == names


def test_files_of_several_receivers_are_read_together(tmp_path: Path) -> None:
    overlay = Overlay()
    paths = [tmp_path / name for name in ("a.json", "b.json")]
    keys = []
    for path, epoch in zip(paths, (0, 1), strict=True):
        writer = GrantsWriter(path, 0, (), random=os.urandom)
        content = writer.renew_content(overlay.held(overlay.names(epochs=(epoch,))), 1, 1)
        assert content is not None
        writer.write(content)
        keys.append(writer.spool_key)
    together, changed = GrantsFile(paths[0], None, paths[1:]).load()
    assert changed
    assert together.spool_keys == tuple(keys)
    assert {name.epoch for scope in together.scopes.values() for name in scope.keys} == {0, 1}
