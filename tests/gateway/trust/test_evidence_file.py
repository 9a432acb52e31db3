"""Evidence on disk: kept once, bounded, refused in a line where it proves nothing."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from bridge.contract import Blame
from bridge.document import NotProvedError, OverlayError, Scope, of_overlays
from bridge.wire import Sealings
from gateway.trust import evidence_file
from gateway.trust.errors import TrustError
from gateway.trust.evidence_file import check_evidence, keep_evidence, standing
from keys.signedheader import header_of
from tests.bridge.document.test_evidence import evidence, owner_of, signed, two_of_one_number
from tests.bridge.reader.test_newest_retained import rotated
from tests.sim.world import World, make_world
from tests.support.regions import one_region, shared

world = shared(one_region, "site", "evil", scopes=[Scope("plant/#")])


def kept(world: World, directory: Path) -> Path:
    made = evidence(world, *two_of_one_number(world))
    path = keep_evidence(directory, made, made.check_proof())
    assert path is not None
    return path


def test_it_is_kept_once_and_read_back(world: World, tmp_path: Path) -> None:
    path = kept(world, tmp_path)
    assert path.parent == tmp_path / "evidence"
    made = evidence(world, *two_of_one_number(world))
    assert check_evidence(path) == made.check_proof()
    assert keep_evidence(tmp_path, made, made.check_proof()) is None


def test_a_files_name_needs_no_quotes_whoever_the_author_is(world: World, tmp_path: Path) -> None:
    policy, owner = world.overlay.policy, owner_of(world)
    made = of_overlays(owner.public_bytes, policy, signed(owner, policy, grants=policy.grants[:1]))
    path = keep_evidence(tmp_path, made, made.check_proof())
    assert path is not None
    assert re.fullmatch(r"overlays-owner-[0-9a-f]{32}\.json", path.name)
    assert check_evidence(path) == made.check_proof()


def test_no_more_files_are_kept_than_there_may_be(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(evidence_file, "FILES_MAX", 1)
    (tmp_path / "evidence").mkdir()
    (tmp_path / "evidence" / "another.json").touch()
    made = evidence(world, *two_of_one_number(world))
    assert keep_evidence(tmp_path, made, made.check_proof()) is None


@pytest.mark.parametrize("content", [b"", b"\xff", b"[]", b"{}", b"[" * 100_000, b'{"veilmq_evidence": 2}'])
def test_what_is_no_evidence_is_refused_with_its_path(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "said.json"
    path.write_bytes(content)
    with pytest.raises(NotProvedError, match=r"said\.json: .*; "):
        check_evidence(path)
    with pytest.raises(TrustError, match="none"):
        check_evidence(tmp_path / "none.json")


def test_a_file_with_one_altered_letter_proves_nothing(world: World, tmp_path: Path) -> None:
    path = kept(world, tmp_path)
    document = json.loads(path.read_bytes())
    document["second"]["topic"] += "0"
    path.write_text(json.dumps(document))
    with pytest.raises(NotProvedError, match="does not verify"):
        check_evidence(path)


def test_a_name_that_somebody_else_took_is_not_accused(world: World, tmp_path: Path) -> None:
    """Attack: the author left, and its name went to a member that signed nothing of this."""
    made = evidence(world, *two_of_one_number(world))
    later = rotated(rotated(world, "evil"), "evil", 1)
    sealings = Sealings(later.overlay)
    certificate = world.overlay.certificate("evil")
    for said in (made.first, made.second):
        frame = said.body + said.signature
        sealings.saw(header_of(frame), frame, said.topic, certificate)
    blames = [effect for effect in sealings.news() if isinstance(effect, Blame)]
    assert [(blame.member, blame.named) for blame in blames] == [("evil", False)]


def test_the_overlay_says_whose_key_it_is(world: World, tmp_path: Path) -> None:
    proven = check_evidence(kept(world, tmp_path))
    assert "present key of evil" in standing(proven, world.overlay)[0]
    assert "stolen" in standing(proven, rotated(world, "evil").overlay)[0]
    later = rotated(rotated(world, "evil"), "evil", 1).overlay
    assert "The evil of this version has another key, against which this proves nothing" in standing(proven, later)[0]
    others = make_world({1: 3}, [], {"site": 1, "evil": 1}, [Scope("plant/#")], 5)
    with pytest.raises(OverlayError, match="another owner"):
        standing(proven, others.overlay)
