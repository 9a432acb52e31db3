"""A description that a person wrote gets one line more, and stays as it was otherwise."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from gateway.owner.listing import as_line, list_member, list_replica

BLOCK = """# mine
name: hospital          # the name
regions:
  - name: north         # here
    members:
      - {card: r1/card.json, address: "a:1"}
      # a comment between
      - card: r2/card.json
        address: "b:2"
  - name: south
    members: [{card: s1/card.json, address: "c:3"}]
edges: [[north, south]]
members:
  # gateways
  - card: g1/card.json
    region: north

scopes: []
"""


@pytest.fixture
def description(tmp_path: Path) -> Path:
    path = tmp_path / "overlay.yaml"
    path.write_text(BLOCK)
    return path


def test_a_replica_in_a_list_of_lines_and_in_one_line(description: Path, tmp_path: Path) -> None:
    assert list_replica(description, "north", tmp_path / "r4/card.json", "d:4")
    assert list_replica(description, "south", Path("/elsewhere/card.json"), "e:5")
    text = description.read_text()
    content = yaml.safe_load(text)
    north, south = (region["members"] for region in content["regions"])
    assert north[0] == {"card": "r4/card.json", "address": "d:4"}
    assert [one["card"] for one in north[1:]] == ["r1/card.json", "r2/card.json"]
    assert south[0] == {"card": "/elsewhere/card.json", "address": "e:5"}
    kept = [line for line in text.splitlines() if line in BLOCK.splitlines()]
    assert len(kept) >= len(BLOCK.splitlines()) - 2
    for comment in ("# mine", "# the name", "# here", "# a comment between", "# gateways"):
        assert comment in text


def test_a_member_with_its_rights(description: Path, tmp_path: Path) -> None:
    assert list_member(description, "south", tmp_path / "g3/card.json", ["a/#"], ["b/#", 'odd"name/#'])
    entry = yaml.safe_load(description.read_text())["members"][0]
    assert entry == {"card": "g3/card.json", "region": "south", "publish": ["a/#"], "read": ["b/#", 'odd"name/#']}


@pytest.mark.parametrize("members", ["members: []\n", "members: [{card: g1/card.json, region: north}]\n"])
def test_into_a_list_in_brackets(tmp_path: Path, members: str) -> None:
    path = tmp_path / "overlay.yaml"
    path.write_text("name: x\n" + members)
    before = yaml.safe_load(path.read_text())["members"]
    assert list_member(path, "north", tmp_path / "g3/card.json", [], [])
    assert yaml.safe_load(path.read_text())["members"][1:] == before


@pytest.mark.parametrize(
    "content", ["", "members: [", "name: x\n", "members: 7\n", "a: &a [1]\nmembers: *a\n", "- members\n"]
)
def test_what_it_cannot_do_changes_nothing(tmp_path: Path, content: str) -> None:
    path = tmp_path / "overlay.yaml"
    path.write_text(content)
    assert not list_member(path, "north", tmp_path / "card.json", [], [])
    assert path.read_text() == content
    assert not list_replica(tmp_path / "absent.yaml", "north", tmp_path / "card.json", "a:1")


def test_a_private_description_stays_private(description: Path, tmp_path: Path) -> None:
    description.chmod(0o600)
    assert list_member(description, "south", tmp_path / "g3/card.json", [], [])
    assert description.stat().st_mode & 0o777 == 0o600


def test_an_unknown_region_is_left_to_the_owner(description: Path) -> None:
    assert not list_replica(description, "west", Path("card.json"), "a:1")
    assert description.read_text() == BLOCK


def test_a_line_is_yaml() -> None:
    entry = {"card": "c", "publish": ["#"]}
    assert yaml.safe_load(as_line(entry)) == entry
