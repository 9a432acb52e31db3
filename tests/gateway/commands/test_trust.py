"""`veilmq trust` and `veilmq overlay`: each command prints what has to be done next, and says a mistake in one line."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

from gateway.setup import Made, Plan, make_overlay
from gateway.trust import load_overlay
from keys.identity import Role
from tests.support.files import edited


@pytest.fixture
def domain(tmp_path: Path, veilmq: Any) -> Path:
    assert veilmq("trust", "init", tmp_path / "works", "--domain", "works")[0] == 0
    return tmp_path / "works"


def test_a_domain_and_an_identity_say_where_their_card_goes(domain: Path, tmp_path: Path, veilmq: Any) -> None:
    issue = ("trust", "issue", domain, "--role", "gateway", "--name", "g1")
    status, out, err = veilmq(*issue, "--out", tmp_path / "g1")
    assert (status, err) == (0, "")
    assert out == f"identity g1 in {tmp_path}/g1; give {tmp_path}/g1/card.json to the owner of the overlay\n"
    status, _, err = veilmq(*issue, "--out", tmp_path / "g1")
    assert (status, err.count("\n")) == (2, 1)
    status, out, _ = veilmq("trust", "show", tmp_path / "g1", "--json")
    assert json.loads(out)["name"] == "g1"


@pytest.mark.parametrize(
    ("role", "options", "said"),
    [
        ("king", [], f"take one of {Role.REPLICA}, {Role.GATEWAY}"),
        ("gateway", ["--node", "card.json"], "a gateway asks no discovery node; leave --node out"),
        ("entity", [], "give --node, the card.json of a gateway"),
        ("entity", ["--node", "card.json", "--host", "h"], "leave --host out"),
    ],
)
def test_what_cannot_be_issued(
    domain: Path, tmp_path: Path, veilmq: Any, role: str, options: list[str], said: str
) -> None:
    status, out, err = veilmq(
        "trust", "issue", domain, "--role", role, "--name", "x", "--out", tmp_path / "x", *options
    )
    assert (status, out, err.count("\n")) == (2, "", 1)
    assert said in err
    assert not (tmp_path / "x").exists()


def test_what_is_exported_holds_no_secret(domain: Path, tmp_path: Path, veilmq: Any) -> None:
    status, out, _ = veilmq("trust", "export", domain, "--out", tmp_path / "public.pem")
    assert (status, "it holds no secret" in out) == (0, True)
    assert "PRIVATE" not in (tmp_path / "public.pem").read_text()


def test_rights_are_given_taken_and_shown(plant: Made, veilmq: Any) -> None:
    owner = ("--owner", plant.directory / "owner")
    revoke, grant = (("trust", what, plant.overlay_path, *owner, "--member", "g2") for what in ("revoke", "grant"))
    status, out, _ = veilmq(*revoke, "--read", "plant/#", "--now")
    assert status == 0
    assert out == f"version 2 in {plant.overlay_path}: these rights of g2 end as soon as members adopt it\n", (
        "seals still"
    )
    _, out, _ = veilmq(*revoke, "--now")
    assert "new keys for plant/#: those that g2 holds seal nothing from then on" in out
    _, out, _ = veilmq(*grant, "--read", "plant/#")
    assert out == f"version 4 in {plant.overlay_path}: g2 has these rights as soon as members adopt it\n"
    _, out, _ = veilmq(*revoke, "--read", "plant/#")
    assert "version 5" in out
    assert " end at " in out
    _, hidden, _ = veilmq("trust", "show", plant.overlay_path, "--json")
    assert "plant/#" not in hidden, "names are tokens to who is not the owner"
    _, clear, _ = veilmq("trust", "show", plant.overlay_path, *owner, "--json")
    assert {"g1", "g2"} <= {grant["member"] for grant in json.loads(clear)["grants"]}
    assert "plant/#" in clear


def test_a_grant_without_a_right_is_asked_for_one(plant: Made, veilmq: Any) -> None:
    before = plant.overlay_path.read_bytes()
    status, _, err = veilmq(
        "trust", "grant", plant.overlay_path, "--owner", plant.directory / "owner", "--member", "g2"
    )
    assert (status, err) == (2, "veilmq: which rights? name them with --publish FILTER or --read FILTER\n")
    assert plant.overlay_path.read_bytes() == before


def test_a_signature_says_what_became_of_it(plant: Made, veilmq: Any) -> None:
    arguments = (plant.directory / "overlay.yaml", "--owner", plant.directory / "owner", "--out", plant.overlay_path)
    status, out, _ = veilmq("overlay", "sign", *arguments)
    assert (status, out) == (0, f"overlay overlay version 2 in {plant.overlay_path}; give it to every member\n")
    status, out, _ = veilmq("trust", "rekey", *arguments)
    assert status == 0
    assert out.count("hand it to k") == 4
    assert "no copy of it is kept here" in out


def test_a_key_service_that_bears_no_liar_is_told_so(plant: Made, veilmq: Any) -> None:
    path = plant.directory / "overlay.yaml"
    with edited(path) as content:
        content["key_service"] = {"issuer": "chain", "servers": content["key_service"]["servers"][:1]}
    status, out, err = veilmq("trust", "rekey", path, "--owner", plant.directory / "owner", "--out", plant.overlay_path)
    assert (status, err) == (0, "")
    assert "key service of 1: bears none that is away, but none that lies" in out


def test_an_overlay_is_shown_to_people_and_to_programs(plant: Made, veilmq: Any) -> None:
    status, out, _ = veilmq("overlay", "show", plant.overlay_path)
    assert status == 0
    for text in ("overlay overlay version 1, owner", "key service: threshold of 4, bears 1 that lie", "edges: none"):
        assert text in out
    _, out, _ = veilmq("overlay", "show", plant.overlay_path, "--json")
    assert {member["name"] for member in json.loads(out)["members"]} == {member.name for member in plant.members}


def test_attach_and_detach_are_tried_out_before_they_are_signed(plant: Made, veilmq: Any) -> None:
    owner, before = ("--owner", plant.directory / "owner"), plant.overlay_path.read_bytes()
    assert veilmq("join", plant.directory / "r4", "--address", "127.0.0.1:29001")[0] == 0
    card = plant.directory / "r4" / "identity" / "card.json"
    attach = ("overlay", "attach", plant.overlay_path, *owner, "--region", "region1", "--card", card,
              "--address", "127.0.0.1:29001")  # fmt: skip
    status, out, _ = veilmq(*attach, "--dry-run")
    assert status == 0
    assert f"version 2 would be in {plant.overlay_path}: view 2 of region region1, 4 replicas, threshold " in out
    assert plant.overlay_path.read_bytes() == before
    status, out, _ = veilmq(*attach)
    assert status == 0
    assert f"version 2 is in {plant.overlay_path}" in out
    assert "of r1, r2, r3 have endorsed it" in out
    assert f"{plant.directory / 'overlay.yaml'} lists it in region region1" in out
    status, _, err = veilmq("overlay", "detach", plant.overlay_path, *owner, "--member", "r1", "--wait", "0")
    assert (status, err.count("\n")) == (2, 1), "one change at a time"


@pytest.mark.parametrize(
    ("options", "said"), [([], "may be stopped 60 s after that;"), (["--now"], "may be stopped then;")]
)
def test_detach_says_when_a_replica_may_be_stopped(tmp_path: Path, veilmq: Any, options: list[str], said: str) -> None:
    made = make_overlay(tmp_path / "four", Plan(replicas=4, gateways=1), 21000, time.time())
    detach = ("overlay", "detach", made.overlay_path, "--owner", made.directory / "owner", "--member", "r3")
    status, out, err = veilmq(*detach, *options)
    assert (status, err) == (0, "")
    assert "view 2 of region region1, 3 replicas" in out
    assert "remove r3 from region region1 in the description" in out
    assert f"r3 {said}" in out
    assert load_overlay(made.overlay_path, int(time.time() * 1000)).policy.version == 2


def test_a_region_that_could_share_no_secret_any_more_is_refused(plant: Made, veilmq: Any) -> None:
    before = plant.overlay_path.read_bytes()
    status, out, err = veilmq(
        "overlay", "detach", plant.overlay_path, "--owner", plant.directory / "owner", "--member", "r3"
    )
    assert (status, out, err.count("\n")) == (2, "", 1)
    assert plant.overlay_path.read_bytes() == before


PLACE = "replicas: 4\nfailures: {a: 3, b: 0}\npaths: [{regions: [a, b]}]\n"


def test_place_prints_regions_paths_and_what_is_left(tmp_path: Path, veilmq: Any) -> None:
    path = tmp_path / "place.yaml"
    path.write_text(PLACE)
    _, out, _ = veilmq("overlay", "place", path, "--json")
    content = json.loads(out)
    status, out, err = veilmq("overlay", "place", path)
    assert (status, err) == (0, "")
    assert "shares per key" in out, "columns are words"
    assert f"taken off paths that had too many: {content['stripped']}; left over: {content['unused']}" in out
    assert path.read_text() == PLACE
