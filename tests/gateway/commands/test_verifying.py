"""`veilmq verify`: one party shows a file, another one checks it with nothing but its own copy of the overlay."""

from __future__ import annotations

import json
import shutil
import time
from pathlib import Path

import pytest

from bridge.contract import Numbered, Publication
from bridge.document import Scope
from bridge.receipts import DeliveryProof, SealedBatch
from gateway import cli
from gateway.setup import Plan, make_overlay
from gateway.trust.overlay_file import document_bytes
from tests.bridge.document.test_evidence import evidence, two_of_one_number
from tests.bridge.receipts.test_delivery_proof import batch_of, row_of
from tests.gateway.trust.test_evidence_file import kept
from tests.sim.world import World, make_world
from tests.support.regions import one_region, shared

world = shared(one_region, "site", "evil", scopes=[Scope("plant/#")])


def test_a_proof_is_said_with_its_author_and_owner(
    world: World, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, overlay = kept(world, tmp_path), tmp_path / "overlay.json"
    overlay.write_bytes(document_bytes(world.overlay))
    assert cli.run(["verify", str(path)]) == 0
    said = capsys.readouterr().out
    assert "proved: the key of evil signed two different publications of one number under one data key" in said
    assert world.overlay.owner.hex() in said
    assert "add --overlay" in said
    assert cli.run(["verify", str(path), "--overlay", str(overlay), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["lie"], told["author"], told["owner"]) == ("publications", "evil", world.overlay.owner.hex())
    assert "present key of evil" in told["standing"]


def test_what_proves_nothing_ends_with_a_line_and_status_2(
    world: World, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first, _ = two_of_one_number(world)
    path = tmp_path / "evidence.json"
    path.write_text(json.dumps(evidence(world, first, first).to_document()))
    assert cli.run(["verify", str(path)]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err == f"veilmq: {path}: it proves nothing: both statements say the same; a repetition is no lie\n"


def test_an_overlay_of_another_owner_is_refused(
    world: World, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Attack: an overlay with invented members, in which the author's name is an honest party's."""
    path, overlay = kept(world, tmp_path), tmp_path / "overlay.json"
    overlay.write_bytes(document_bytes(make_world({1: 3}, [], {"evil": 1}, [Scope("plant/#")], 5).overlay))
    assert cli.run(["verify", str(path), "--overlay", str(overlay)]) == 2
    assert "another owner" in capsys.readouterr().err


def test_an_owner_that_gave_two_members_two_documents_is_proved_from_their_files(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = make_overlay(tmp_path / "made", Plan(), 21900, time.time())
    owner, first, other = made.overlay_path.parent / "owner", made.overlay_path, tmp_path / "other.json"
    shutil.copy(first, other)
    shutil.copytree(owner, tmp_path / "owner2")
    description = made.overlay_path.parent / "overlay.yaml"
    sign = ["overlay", "sign", str(description), "--owner"]
    assert cli.run([*sign, str(owner), "--out", str(first)]) == 0
    for _ in range(2):  # the second time they are of two versions
        assert cli.run([*sign, str(tmp_path / "owner2"), "--out", str(other)]) == 0
        capsys.readouterr()
        proof = tmp_path / "proof.json"
        status = cli.run(["overlay", "compare", str(first), str(other), "--out", str(proof)])
        said = capsys.readouterr().out
        if status:
            assert status == 1
            assert "the key of the owner signed two different overlays of one version" in said
            assert cli.run(["verify", str(proof), "--overlay", str(first)]) == 0
            assert "the author is the owner of this overlay" in capsys.readouterr().out
            proof.unlink()
    assert (status, proof.exists()) == (0, False)
    assert "nothing contradicts" in said
    assert cli.run(["overlay", "compare", str(first), str(description)]) == 2
    assert "is not JSON" in capsys.readouterr().err


def test_a_publisher_forges_no_line_by_its_topic_and_stops_no_check_by_its_time(
    world: World, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Attack: a true proof, whose topic goes on with lines of its own, and whose times are in no calendar."""
    topic = "plant/t\x1b[2K\nproved: evil signed that it owes a million"
    bare = batch_of(world)
    record = Numbered(5, Publication(topic, b"x", 1, time_ms=1 << 62))
    batch = SealedBatch.from_records(5, 1, bare.topic, bare.frame, bare.blinding, [record])
    certificate = world.overlay.certificate
    certificates = certificate("site"), certificate("site"), certificate("evil")
    row = row_of(world, [batch], "evil")
    made = DeliveryProof.make(world.identities["site"], world.overlay.owner, certificates, batch, 5, row)
    path = tmp_path / "delivery.json"
    path.write_text(json.dumps(made.to_document()))
    assert cli.run(["verify", str(path)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.startswith("proved: ") for line in lines] == [True, False, False, False]
    assert "\\x1b[2K\\nproved: evil" in lines[0]
    assert f"published {1 << 62} ms" in lines[1]
