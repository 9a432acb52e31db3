"""Credentials of an entity: made by its domain, refused when anything is missing, exchanged, over or readable."""

from __future__ import annotations

import base64
import json
import stat
from pathlib import Path

import pytest

from gateway.trust.credentials import LIFE_DAYS, Credentials
from gateway.trust.domains import Card, TrustDomain
from gateway.trust.errors import TrustError
from keys.delegation import Advertisement
from keys.identity import Role

NOW = 1_800_000_000.0
DAY_S = 86_400


class Works:
    def __init__(self, path: Path) -> None:
        self.path = path
        self.domain = TrustDomain.create(path / "works", "works", NOW)
        self.domain.issue("gate", Role.GATEWAY, ("127.0.0.1",), path / "gate", NOW)
        self.nodes = [Card.load(path / "gate" / "card.json")]

    def issue(self, name: str = "pump", **changes: object) -> Credentials:
        return Credentials.issue(self.domain, name, self.nodes, self.path / name, NOW, **changes)  # type: ignore[arg-type]


@pytest.fixture
def works(tmp_path: Path) -> Works:
    return Works(tmp_path)


def test_what_a_domain_issues_loads_and_proves_who_it_is(works: Works) -> None:
    made = works.issue()
    again = Credentials.load(made.directory, NOW)
    assert again.name == "pump"
    assert again.certificate == made.certificate
    assert again.certificate.role is Role.ENTITY
    assert again.authority == works.domain.ca.public_bytes
    assert again.nodes == {"gate": works.nodes[0].public_key}
    again.certificate.verify(works.domain.ca.public_bytes, int(NOW * 1000))
    assert stat.S_IMODE((made.directory / "key.pem").stat().st_mode) == 0o600


def test_an_identity_is_not_written_over(works: Works) -> None:
    key = (works.issue().directory / "key.pem").read_bytes()
    with pytest.raises(TrustError, match="holds an identity already"):
        works.issue()
    assert (works.path / "pump" / "key.pem").read_bytes() == key


@pytest.mark.parametrize("name", ["a/b", "+", "#", "", "Broker", "PublishOnly", "two words", "x" * 65])
def test_names_that_topics_could_not_carry_or_that_rules_have_are_refused(works: Works, name: str) -> None:
    with pytest.raises(TrustError):
        Credentials.issue(works.domain, name, works.nodes, works.path / "out", NOW)
    assert not (works.path / "out" / "key.pem").exists()


def test_credentials_end(works: Works) -> None:
    made = works.issue(days=3)
    Credentials.load(made.directory, NOW + 3 * DAY_S)
    with pytest.raises(TrustError, match=r"ended.*issue the entity anew"):
        Credentials.load(made.directory, NOW + 3 * DAY_S + 1)
    assert works.issue("lasting").certificate.not_after_ms == (NOW + LIFE_DAYS * DAY_S) * 1000


def test_a_key_that_others_may_read_is_not_used(works: Works) -> None:
    made = works.issue()
    (made.directory / "key.pem").chmod(0o644)
    with pytest.raises(TrustError, match="chmod 600"):
        Credentials.load(made.directory, NOW)


def test_a_key_of_somebody_else_is_not_used(works: Works) -> None:
    made, other = works.issue(), works.issue("other")
    (made.directory / "key.pem").write_bytes((other.directory / "key.pem").read_bytes())
    with pytest.raises(TrustError, match="different keys"):
        Credentials.load(made.directory, NOW)


def test_another_authority_than_the_one_that_certified_is_not_believed(works: Works) -> None:
    made = works.issue()
    stranger = TrustDomain.create(works.path / "stranger", "stranger", NOW)
    path = made.directory / "entity.json"
    content = json.loads(path.read_text())
    content["authority"] = base64.b64encode(stranger.ca.public_bytes).decode()
    path.write_text(json.dumps(content))
    with pytest.raises(TrustError, match=r"does not verify.*issue the entity anew"):
        Credentials.load(made.directory, NOW)


@pytest.mark.parametrize(
    "damage",
    [
        {"veilmq_entity": 2}, {"certificate": "AAAA"}, {"certificate": "not base64!"}, {"certificate": 7},
        {"authority": None}, {"nodes": []}, {"nodes": {"gate": 1}}, {"nodes": "gate"},
    ],
    ids=str,
)  # fmt: skip
def test_what_is_damaged_is_one_line_with_the_cure(works: Works, damage: dict[str, object]) -> None:
    path = works.issue().directory / "entity.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **damage}))
    with pytest.raises(TrustError, match=r"is damaged.*issue the entity anew") as caught:
        Credentials.load(path.parent, NOW)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("content", ["", "[]", "{}", "{", "null"])
def test_what_is_no_description_is_damaged(works: Works, content: str) -> None:
    path = works.issue().directory / "entity.json"
    path.write_text(content)
    with pytest.raises(TrustError, match="is damaged"):
        Credentials.load(path.parent, NOW)


def test_an_entity_that_believes_no_node_is_of_no_use(works: Works) -> None:
    with pytest.raises(TrustError, match="--node CARD"):
        Credentials.issue(works.domain, "lonely", [], works.path / "lonely", NOW)
    with pytest.raises(TrustError, match="holds no entity"):
        Credentials.load(works.path / "nowhere", NOW)


def test_the_key_does_not_show(works: Works) -> None:
    made = works.issue()
    assert "identity" not in repr(made)


def test_a_trace_topic_is_kept_for_the_next_life_and_a_damaged_one_is_none(works: Works) -> None:
    made = works.issue()
    assert made.advertisement() is None
    advertisement = Advertisement(
        b"T" * 16, "Availability/Traces/pump", made.certificate, ("*",), 1, 2, "gate"
    ).signed(made.identity)  # fmt: skip
    made.keep_advertisement(advertisement)
    assert made.advertisement() == advertisement
    assert stat.S_IMODE((made.directory / "topic.bin").stat().st_mode) == 0o600
    (made.directory / "topic.bin").write_bytes(advertisement.encode()[:-1])
    assert made.advertisement() is None


def test_a_disk_that_refuses_costs_nothing_now(works: Works) -> None:
    made = works.issue()
    (made.directory / "topic.bin").mkdir()
    made.keep_advertisement(Advertisement(b"T" * 16, "x", made.certificate, (), 1, 2, "gate").signed(made.identity))
    assert made.advertisement() is None
