"""The owner's description: a mistake in it is one line that names cause and cure."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bridge.document.overlay import OverlayError
from gateway.owner.description import read_description
from gateway.trust.errors import TrustError
from tests.support.parties import Parties


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda d: d.update(colour="red"), "colour: unknown key"),
        (lambda d: d["regions"][0]["members"][0].update(address="8883"), "regions.0.members.0.address"),
        (lambda d: d["regions"][0]["members"].pop(), "has 2 replicas and cannot share a secret"),
        (lambda d: d["scopes"].append({"filter": "a/#/b"}), "'#' must be the last level"),
        (lambda d: d["scopes"].append({"filter": "pumps/#"}), "scope pumps/# is listed twice"),
        (lambda d: d.update(name="../owner"), "name: string should match"),
        (lambda d: d.update(epochs={"length_s": 60}), "epochs need a key_service"),
        (lambda d: d["members"][0].update(read=["a+"]), "g1: read: a\\+"),
        (lambda d: d["members"][0].update(publsh=[]), "members.0.publsh: unknown key; did you mean publish"),
        (lambda d: d["members"][0].update(region="south"), "there is no region south; known are north"),
        (lambda d: d["members"].append(d["members"][0]), "g1 is listed twice"),
        (lambda d: d["members"][0].update(card="r1/card.json"), "is the card of a replica"),
        (lambda d: d["regions"][0]["members"][0].update(card="none.json"), "No such file"),
        (lambda d: d.update(edges=[["north", "north"]]), "tree"),
    ],
)
def test_a_mistake_in_the_owners_file_is_one_line(
    world: Parties, change: Callable[[dict[str, Any]], object], says: str
) -> None:
    with pytest.raises((TrustError, OverlayError), match=says) as caught:
        world.sign(change)
    assert "\n" not in str(caught.value)
    assert not world.out.exists()


def test_a_file_that_is_no_yaml(tmp_path: Path) -> None:
    path = tmp_path / "x.yaml"
    path.write_text("a: [")
    with pytest.raises(TrustError, match=r"x\.yaml:1: not valid YAML"):
        read_description(path)
