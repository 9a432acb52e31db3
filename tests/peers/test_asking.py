"""The frame of `make peers`, without any peer."""

from __future__ import annotations

from tests.peers.asking import Answers, Kind, answered, differences, page, rows_of
from tests.peers.brokers import BROKERS
from tests.peers.installing import Npm, Pypi


def kind(answers: dict[str, Answers]) -> Kind:
    def ask(name: str) -> Answers:
        if name == "broken":
            raise OSError("no | such\nthing")
        return answers[name]

    questions = {"starts": "it starts", "passes": "a message passes"}
    absent = {"nowhere": "no package of that name"}
    peers = [*answers, "broken", "nowhere"]
    return Kind("Brokers", "Each once.", questions, peers, ask, lambda name: "1.0", lambda name: absent.get(name, ""))


def made(answers: dict[str, Answers]) -> str:
    return page([answered(kind(answers), lambda line: None)], "2026-11-28")


def test_each_peer_has_a_row_also_one_that_breaks_off_or_cannot_be_had() -> None:
    assert rows_of(made({"good": {"starts": "yes", "passes": "QoS 1"}})) == {
        ("Brokers", "good 1.0"): ["yes", "QoS 1"],
        ("Brokers", "broken 1.0"): ["broke off: OSError: no / such thing", ""],
        ("Brokers", "nowhere 1.0"): ["not here: no package of that name", ""],
    }


def test_differences_to_the_last_run_are_said_row_by_row() -> None:
    before, after = made({"a": {"starts": "yes"}, "b": {"starts": "yes"}}), made({"a": {"starts": "no"}, "c": {}})
    assert differences(before, before) == []
    assert differences(before, after) == [
        "gone: b 1.0 (Brokers)",
        "changed: a 1.0 (Brokers): yes |  -> no | ",
        "new: c 1.0 (Brokers):  | ",
    ]


def test_versions_are_pinned_and_names_differ() -> None:
    sources = [peer.source for peer in BROKERS]
    assert all(one.version for one in sources if isinstance(one, Npm | Pypi))
    assert len({peer.name for peer in BROKERS}) == len(BROKERS)
