"""A new version of the overlay reaches processes that run; members rotate their keys under load."""

from __future__ import annotations

import json
import shutil
import time
from typing import Any

import paho.mqtt.client as paho
import pytest

from gateway.client.tls import LinkTls
from gateway.files import stamp
from gateway.trust import overlay_file
from gateway.trust.domains import LocalIdentity
from gateway.trust.errors import TrustError
from gateway.trust.live_overlay import LiveOverlay, take_listed_key
from gateway.trust.overlay_file import load_overlay
from tests.gateway.overlay_processes import OverlayProcesses
from tests.gateway.test_key_service import Load, flowing
from tests.waits import wait_until

REPLICAS = ("north1", "north2", "north3")
EVERYBODY = (*REPLICAS, "site", "control")


def one_region(overlay: OverlayProcesses) -> OverlayProcesses:
    return overlay.make({"north": 3}, [], {"site": "north", "control": "north"})


def version_at(overlay: OverlayProcesses, name: str) -> int:
    return load_overlay(overlay.directory / f"{name}-overlay.json", int(time.time() * 1000)).policy.version


def spread(overlay: OverlayProcesses, *names: str) -> bool:
    """Whether these members rewrote their overlay files with the owner's version."""
    owners = load_overlay(overlay.directory / "overlay.json", int(time.time() * 1000)).policy.version
    return wait_until(lambda: all(version_at(overlay, name) == owners for name in names), 15)


def test_a_revoked_publisher_is_told_so_and_nothing_falls_back_to_local_or_plain(overlay: OverlayProcesses) -> None:
    one_region(overlay).start(*EVERYBODY)
    load = Load(overlay)
    assert flowing(load)
    assert wait_until(lambda: load.complete, 20), load.story()
    local: list[bytes] = []
    nearby = overlay.client("site", "nearby", paho.MQTTv5)
    nearby.on_message = lambda client, userdata, message: local.append(message.payload)
    nearby.subscribe("plant/#", 1)
    answers: list[int] = []
    device = overlay.client("site", "other-device", paho.MQTTv5)
    device.on_publish = lambda client, userdata, mid, reason, properties: answers.append(reason.value)
    old = overlay.client("site", "old-device", paho.MQTTv311)
    overlay.veilmq("trust", "revoke", "overlay.json", "--owner", "owner", "--member", "site", "--publish", "#")
    overlay.hand_out("north3")  # one member is enough
    assert spread(overlay, *EVERYBODY)

    def refused() -> bool:
        device.publish("plant/b", b"refused", qos=1).wait_for_publish(5)
        return answers[-1:] == [0x87]

    assert wait_until(refused, 20), answers
    before = list(load.got)
    old.publish("plant/b", b"refused", qos=1).wait_for_publish(5)  # 3.1.1 has no code for it
    device.publish("plant/b", b"refused", qos=0)
    time.sleep(0.5)  # time for what must not come
    assert load.got == before
    assert "refused a publication" in overlay.log("site")
    assert "Traceback" not in "".join(overlay.log(name) for name in EVERYBODY)


def test_a_new_member_is_let_in_and_a_removed_one_is_shut_out(overlay: OverlayProcesses) -> None:
    overlay.make({"north": 3}, [], {"site": "north", "control": "north", "late": "north"})
    overlay.start(*EVERYBODY, "late")
    load = Load(overlay)
    assert flowing(load)
    assert wait_until(lambda: overlay.figures("late").get("links_up") == 3, 20)
    overlay.describe(lambda d: d.update(members=[m for m in d["members"] if m["card"] != "late/card.json"]))
    overlay.hand_out("site")
    assert spread(overlay, *REPLICAS)
    assert wait_until(lambda: overlay.figures("late").get("links_up") == 0, 10)
    assert wait_until(lambda: all("is none of the overlay's" in overlay.log(name) for name in REPLICAS), 10)
    assert load.until(lambda: len(load.got) > 20, 10)
    assert wait_until(lambda: load.complete, 20), load.story()


@pytest.mark.slow
def test_what_needs_a_restart_is_said_and_kept(overlay: OverlayProcesses) -> None:
    one_region(overlay).start(*EVERYBODY)

    def trust_all(description: dict[str, Any]) -> None:
        description["regions"][0]["trusted"] = True

    overlay.describe(trust_all)
    overlay.hand_out("site")
    assert wait_until(lambda: "restart" in overlay.log("site"), 10), overlay.log("site")
    load = Load(overlay)
    assert flowing(load)  # as before
    for name in EVERYBODY:
        overlay.kill(name)
    overlay.hand_out(*EVERYBODY)
    overlay.start(*EVERYBODY)
    assert wait_until(lambda: overlay.figures("site").get("policy_version") == 2, 20)


def test_a_replica_and_a_gateway_rotate_under_load(overlay: OverlayProcesses) -> None:
    one_region(overlay).start(*EVERYBODY)
    load = Load(overlay)
    assert flowing(load)
    former = {name: (overlay.directory / name / "card.json").read_bytes() for name in ("north2", "site")}
    overlay.veilmq("trust", "rotate", "north2", "--domain", "domain-north2")
    overlay.veilmq("trust", "rotate", "site", "--domain", "owner")

    overlay.describe(cards=["north2/next/card.json", "site/next/card.json"])
    overlay.hand_out("control")
    assert load.until(lambda: all("rotated" in overlay.log(name) for name in former), 15)
    count = len(load.got)
    assert load.until(lambda: len(load.got) > count + 40 and overlay.figures("site").get("links_up") == 3, 15)
    assert wait_until(lambda: load.complete, 10), (load.sent, len(load.got))
    for name, card in former.items():
        assert (overlay.directory / name / "card.json").read_bytes() != card
        assert (overlay.directory / name / "previous" / "card.json").read_bytes() == card
    assert "Traceback" not in "".join(overlay.log(name) for name in EVERYBODY)


# ------------------------------------------------------------------------------------------ files only


def live(overlay: OverlayProcesses, name: str) -> LiveOverlay:
    path = overlay.directory / f"{name}-overlay.json"
    local = LocalIdentity.load(overlay.directory / name)
    seen = stamp(path)
    signed = load_overlay(path, int(time.time() * 1000), local.directory / "overlay.pin")
    return LiveOverlay(path, local, LinkTls(name, local.cert, local.key_path, signed.members), signed, seen)


def test_a_replaced_file_is_noticed_once_and_our_own_rewriting_never(overlay: OverlayProcesses) -> None:
    one_region(overlay)
    watched = live(overlay, "site")
    assert watched.changed_content() is None
    overlay.veilmq("trust", "revoke", "overlay.json", "--owner", "owner", "--member", "control")
    overlay.hand_out("site")
    document = watched.changed_content()
    assert document is not None
    assert json.loads(document)["name"] == "test"
    assert watched.changed_content() is None
    other = live(overlay, "control")
    other.adopt_overlay(watched_overlay := load_overlay(overlay.directory / "overlay.json", int(time.time() * 1000)))
    assert other.changed_content() is None
    assert version_at(overlay, "control") == watched_overlay.policy.version == 2
    (overlay.directory / "control-overlay.json").unlink()
    assert other.changed_content() is None


@pytest.mark.parametrize("moment", ["_is_behind", "_write_pin"])
def test_a_file_that_is_put_there_while_we_write_ours_is_noticed(
    overlay: OverlayProcesses, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    """While ours is compared with what was there, and right after ours took its place."""
    one_region(overlay)
    watched = live(overlay, "site")
    for member in ("control", "site"):
        overlay.veilmq("trust", "revoke", "overlay.json", "--owner", "owner", "--member", member)
        if member == "control":
            second = load_overlay(overlay.directory / "overlay.json", int(time.time() * 1000))
    former = getattr(overlay_file, moment)

    def meanwhile(*arguments: object) -> object:
        found = former(*arguments)
        overlay.hand_out("site")
        return found

    monkeypatch.setattr(overlay_file, moment, meanwhile)
    watched.adopt_overlay(second)
    assert version_at(overlay, "site") == 3
    assert watched.changed_content() is not None


def test_a_file_that_is_put_there_while_the_process_starts_is_noticed(overlay: OverlayProcesses) -> None:
    one_region(overlay)
    overlay.veilmq("trust", "revoke", "overlay.json", "--owner", "owner", "--member", "control")
    path = overlay.directory / "site-overlay.json"
    local, seen = LocalIdentity.load(overlay.directory / "site"), stamp(path)
    signed = load_overlay(path, int(time.time() * 1000))
    overlay.hand_out("site")
    watched = LiveOverlay(path, local, LinkTls("site", local.cert, local.key_path, signed.members), signed, seen)
    assert watched.changed_content() is not None


def test_a_listed_key_that_we_do_not_have_is_refused_and_no_other_is_taken(overlay: OverlayProcesses) -> None:
    one_region(overlay)
    overlay.veilmq("trust", "rotate", "site", "--domain", "owner")
    now_ms = int(time.time() * 1000)
    local = LocalIdentity.load(overlay.directory / "site")
    signed = load_overlay(overlay.directory / "overlay.json", now_ms)
    assert take_listed_key(local, signed) is local  # prepared, but the owner has not signed it
    assert (overlay.directory / "site" / "next").exists()

    overlay.describe(cards=["site/next/card.json"])
    signed = load_overlay(overlay.directory / "overlay.json", now_ms)
    away = overlay.directory / "next-elsewhere"
    shutil.move(overlay.directory / "site" / "next", away)
    assert take_listed_key(local, signed) is local  # the former key counts beside it
    shutil.move(away, overlay.directory / "site" / "next")
    taken = take_listed_key(local, signed)
    assert taken.identity.public_bytes == signed.certificate("site").public_key
    with pytest.raises(TrustError, match="holds no key that the overlay lists for north1"):
        take_listed_key(LocalIdentity.load(overlay.directory / "north1"), _without(signed, "north1", "north2"))


def _without(signed: Any, name: str, other: str) -> Any:
    """The overlay as if it listed the other's key under this name."""
    signed.members[name] = signed.members[other]
    return signed
