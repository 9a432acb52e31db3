"""The owner's side of attaching and detaching replicas: what is signed, what is refused, and in which words."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bridge.document.overlay import Endorsement, Overlay, OverlayError
from gateway import cli
from gateway.base.config import load
from gateway.client.tls import LinkTls
from gateway.files import stamp
from gateway.owner.attaching import attach, detach
from gateway.owner.signing import grant
from gateway.party import Party
from gateway.trust.domains import TrustDomain
from gateway.trust.errors import TrustError
from gateway.trust.live_overlay import LiveOverlay
from gateway.trust.overlay_file import describe_overlay, document_bytes, load_overlay
from keys.grants import Right
from keys.identity import Role
from tests.support.parties import HOSTS, NOW, NOW_MS, Parties, on_disk

GRACE_S = 60
LATER = NOW + GRACE_S + 1


class Changing(Parties):
    """The same with a fourth and a fifth replica that nobody took in yet."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        for place in (4, 5):
            party = TrustDomain.create(directory / f"party{place}", f"party{place}", self.now)
            party.issue(f"r{place}", Role.REPLICA, HOSTS, directory / f"r{place}", self.now)
        self.sign()

    def attach(self, name: str = "r4", now: float = NOW, **options: Any) -> Overlay:
        address = f"127.0.0.1:888{name[1:]}"
        card = self.directory / name / "card.json"
        return attach(self.out, self.owner, "north", card, address, now, **options).overlay

    def detach(self, name: str, now: float = NOW, **options: Any) -> Overlay:
        return detach(self.out, self.owner, name, now, **options).overlay

    def endorse(self, *names: str) -> None:
        """What a member's copy of the file has in addition, put in place of the owner's."""
        overlay = load_overlay(self.out, NOW_MS)
        news = [Endorsement.sign_view(overlay.latest[1], name, self.local(name).identity) for name in names]
        self.out.write_bytes(document_bytes(overlay.endorsed(news, NOW)))

    def listing(self, *names: str) -> Callable[[dict[str, Any]], None]:
        """A change of the description: these replicas."""

        def change(description: dict[str, Any]) -> None:
            description["regions"][0]["members"] = [
                {"card": f"{name}/card.json", "address": f"127.0.0.1:888{name[1:]}"} for name in names
            ]

        return change


world = on_disk(Changing)


def test_the_next_view_has_the_newcomer_last_and_names_the_one_before(world: Changing) -> None:
    overlay = world.attach()
    view = overlay.latest[1]
    assert (view.number, view.members, view.threshold) == (2, ("r1", "r2", "r3", "r4"), 3)
    assert view.former is not None
    assert (view.former.number, view.former.members) == (1, ("r1", "r2", "r3"))
    assert (view.since_ms, view.grace_s) == (NOW_MS, GRACE_S)
    assert overlay.views[1].number == 1, "the owner alone puts nothing in force"
    assert overlay.members["r4"].address == "127.0.0.1:8884"
    assert overlay.certificate("r4").not_after_ms == overlay.certificate("r1").not_after_ms
    assert load_overlay(world.out, NOW_MS).policy.version == 2


def test_a_replica_of_five_leaves_and_is_dropped_once_its_last_view_is_over(world: Changing) -> None:
    world.attach("r4")
    world.endorse("r1", "r3")
    world.attach("r5", LATER)
    world.endorse("r1", "r3", "r4")
    overlay = world.detach("r2", LATER + 61)
    assert overlay.latest[1].members == ("r1", "r3", "r4", "r5")
    assert "r2" in overlay.members, "it is needed while its view may be open"
    world.endorse("r1", "r3", "r4")
    assert "r2" in grant(world.out, world.owner, "g1", [("pumps/#", Right.READ)], LATER + 62).members
    overlay = grant(world.out, world.owner, "spark", [("public/#", Right.READ)], LATER + 122)
    assert "r2" not in overlay.members
    assert overlay.latest[1].former is None
    assert overlay.views[1].number == 4


def test_a_replica_that_left_may_come_back_with_another_key(world: Changing) -> None:
    world.attach("r4")
    world.endorse("r1", "r2")
    world.detach("r4", LATER)
    world.endorse("r1", "r2", "r3")
    with pytest.raises(TrustError, match=r"its former view is open until .*; try again in 30 s"):
        world.attach("r4", LATER + 30)
    TrustDomain.load(world.directory / "party4").issue("r4", Role.REPLICA, HOSTS, world.directory / "new", NOW)
    overlay = attach(world.out, world.owner, "north", world.directory / "new" / "card.json", "h:1", LATER + 61).overlay
    assert overlay.latest[1].members == ("r1", "r2", "r3", "r4")


def test_a_dry_run_signs_nothing(world: Changing) -> None:
    before = world.out.read_bytes()
    assert world.attach(dry_run=True).policy.version == 2
    assert world.out.read_bytes() == before
    assert world.attach().policy.version == 2
    with pytest.raises(TrustError, match="changed just now"):
        world.attach("r5", dry_run=True)


def test_a_second_change_waits_until_the_first_is_over_and_seen_to_be_in_force(world: Changing) -> None:
    """Else a change that nobody heard of would be skipped, and the replicas of the view before it left behind."""
    world.attach("r4")
    with pytest.raises(TrustError, match="region north changed just now"):
        world.detach("r1", NOW + 59)
    world.endorse("r2")
    with pytest.raises(TrustError, match="has 1 of 2 endorsements here; give the overlay file to its replicas"):
        world.detach("r1", LATER)
    world.endorse("r3")
    assert world.detach("r1", LATER).latest[1].number == 3


def test_endorsements_of_others_are_not_counted(world: Changing) -> None:
    """Attack: a member's copy of the file that says what nobody signed."""
    world.attach("r4")
    world.endorse("r4", "g1", "r1")  # a newcomer and a gateway have no say
    other = Changing(world.directory / "other")
    other.attach("r4")
    other.endorse("r2")
    document = json.loads(world.out.read_text())
    document["endorsements"] += json.loads(other.out.read_text())["endorsements"] + ["AAAA", "?"]
    world.out.write_text(json.dumps(document))
    with pytest.raises(TrustError, match="has 1 of 2 endorsements"):
        world.detach("r1", LATER)


def test_detached_at_once_means_no_grace(world: Changing) -> None:
    world.attach("r4")
    world.endorse("r1", "r2")
    assert world.detach("r2", LATER, grace_s=0).latest[1].grace_s == 0
    world.endorse("r1", "r3", "r4")
    assert "r2" not in world.attach("r5", LATER + 1).members


# ------------------------------------------------------------------------------------------- the description


def test_the_description_has_to_say_what_was_attached_and_detached(world: Changing) -> None:
    world.attach("r4")
    with pytest.raises(TrustError, match="r4 is signed and not listed; add its card and address"):
        world.sign()
    overlay = world.sign(world.listing("r1", "r2", "r3", "r4")).overlay
    assert overlay.latest[1].number == 2
    assert overlay.latest[1].former is not None
    world.endorse("r1", "r2")
    world.detach("r2", LATER)
    with pytest.raises(TrustError, match="r2 is listed and not signed; let it join by `veilmq overlay attach`"):
        world.sign(now=LATER)
    overlay = world.sign(world.listing("r4", "r3", "r1"), now=LATER).overlay
    assert overlay.latest[1].members == ("r1", "r3", "r4"), "places are as they were signed"
    assert "r2" in overlay.members
    world.endorse("r1", "r3", "r4")
    assert "r2" not in world.sign(now=LATER + 61).overlay.members


def test_replicas_do_not_come_and_go_by_the_description(world: Changing) -> None:
    with pytest.raises(TrustError, match="r4 is listed and not signed"):
        world.sign(world.listing("r1", "r2", "r3", "r4"))
    assert load_overlay(world.out, NOW_MS).policy.version == 1


# ------------------------------------------------------------------------------------------------- the command


def said(capsys: pytest.CaptureFixture[str], *arguments: str | Path) -> str:
    """One line, and status 2."""
    assert cli.run([str(argument) for argument in arguments]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    return error


def test_mistakes_are_one_line(world: Changing, capsys: pytest.CaptureFixture[str]) -> None:
    card, north = world.directory / "r4" / "card.json", ("--region", "north", "--address", "h:1")
    join = ("overlay", "attach", world.out, "--owner", world.owner)
    leave = ("overlay", "detach", world.out, "--owner", world.owner)
    assert "no region south; known are north" in said(
        capsys, *join, "--region", "south", "--address", "h:1", "--card", card
    )
    assert "g1 is a gateway, which nobody in the overlay dials" in said(
        capsys, *join, *north, "--card", world.directory / "g1" / "card.json"
    )
    assert "r1 is in region north already" in said(capsys, *join, *north, "--card", world.directory / "r1/card.json")
    assert "No such file" in said(capsys, *join, *north, "--card", world.directory / "none.json")
    assert "write HOST:PORT" in said(capsys, *join, "--region", "north", "--address", "h", "--card", card)
    twin = TrustDomain.load(world.directory / "party1")
    twin.issue("r6", Role.REPLICA, HOSTS, world.directory / "r6", NOW)
    assert "are of one trust domain (party1)" in said(
        capsys, *join, *north, "--card", world.directory / "r6" / "card.json"
    )
    assert "no replica g9 is in a region; known are r1, r2, r3" in said(capsys, *leave, "--member", "g9")
    assert "would keep 2 replicas" in said(capsys, *leave, "--member", "r1")
    assert load_overlay(world.out, NOW_MS).policy.version == 1


@pytest.mark.long
def test_a_path_over_the_limits_is_refused(world: Changing) -> None:
    """The eighteenth replica of a second region would make a search too long."""
    for place in range(18):
        party = TrustDomain.create(world.directory / f"far{place}", f"far{place}", NOW)
        party.issue(f"x{place}", Role.REPLICA, HOSTS, world.directory / f"x{place}", NOW)
    south = {"name": "south", "members": [{"card": f"x{n}/card.json", "address": "h:1"} for n in range(17)]}
    world.sign(lambda d: d.update(regions=[*d["regions"], south], edges=[["north", "south"]]))
    with pytest.raises(OverlayError, match="combinations of replicas to try"):
        attach(world.out, world.owner, "south", world.directory / "x17" / "card.json", "h:1", NOW)


def test_what_the_commands_and_show_print(world: Changing, capsys: pytest.CaptureFixture[str]) -> None:
    world.now = NOW
    arguments = ["--owner", str(world.owner), "--region", "north", "--address", "h:1", "--card"]
    assert cli.run(["overlay", "attach", str(world.out), *arguments, str(world.directory / "r4" / "card.json")]) == 0
    out = capsys.readouterr().out
    assert "view 2 of region north, 4 replicas, threshold 3" in out
    assert "once 2 of r1, r2, r3 have endorsed it" in out
    assert "overlay.yaml lists it in region north" in out
    world.endorse("r1")
    change = describe_overlay(load_overlay(world.out, NOW_MS))["changes"][0]
    assert (change["joins"], change["leaves"], change["in_force"]) == (["r4"], [], False)
    assert (change["endorsed_by"], change["needed"], change["former_open_until"]) == (["r1"], 2, "")
    world.endorse("r1", "r2")
    assert cli.run(["overlay", "show", str(world.out), "--json"]) == 0
    content = json.loads(capsys.readouterr().out)
    assert content["changes"][0]["in_force"] is True
    assert [replica["name"] for replica in content["regions"][0]["replicas"]] == ["r1", "r2", "r3", "r4"]
    assert cli.run(["overlay", "show", str(world.out)]) == 0
    assert "changes" in capsys.readouterr().out


# ---------------------------------------------------------------------------------------------------- a member's file


def test_a_members_file_gets_the_endorsements_that_it_lacks_and_a_newer_one_is_looked_at(world: Changing) -> None:
    overlay, local, path = world.attach(), world.local("r1"), world.directory / "r1-overlay.json"
    signed = world.out.read_bytes()
    path.write_bytes(signed)
    live = LiveOverlay(
        path, local, LinkTls("r1", local.cert, local.key_path, overlay.members, lambda: NOW), overlay, stamp(path)
    )
    news = [Endorsement.sign_view(overlay.latest[1], name, world.local(name).identity) for name in ("r1", "r2")]
    endorsed = overlay.endorsed(news, NOW)
    live.adopt_overlay(endorsed)
    assert load_overlay(path, NOW_MS).views[1].number == 2, "a restart begins with the view in force"
    assert live.changed_content() is None, "what we wrote ourselves is no news"
    path.write_bytes(signed)  # somebody hands out the owner's file once more
    live.keep_overlay(endorsed)
    assert live.changed_content() == signed, "it is not written over before it was looked at"
    live.complete()
    assert load_overlay(path, NOW_MS).endorsements == frozenset(news)
    newer = document_bytes(grant(world.out, world.owner, "g1", [("pumps/#", Right.READ)], NOW))
    path.write_bytes(newer)
    live.keep_overlay(endorsed)  # at this very moment
    assert live.changed_content() == newer


def test_a_replica_in_no_view_is_told_so_at_its_start(world: Changing, monkeypatch: pytest.MonkeyPatch) -> None:
    world.attach("r4")
    world.endorse("r1", "r2")
    world.detach("r1", LATER, grace_s=0)
    world.endorse("r1", "r2", "r3")
    (world.directory / "r1.yaml").write_text(
        "listeners: {default: {type: tcp, bind: '127.0.0.1:0', overlay: true, ssl: true}}\ndata: data\n"
        "overlay: {identity: r1, overlay: overlay.json}\n"
    )
    monkeypatch.setattr("gateway.party.time.time", lambda: LATER + 1)
    with pytest.raises(OverlayError, match="r1 is in no view"):
        Party(load(world.directory / "r1.yaml"))
