"""What a member may publish on within a scope: its grants, without what lies in scopes inside."""

from __future__ import annotations

import pytest

from bridge.document import RecordRights, Scope
from keys.errors import BadFrame
from tests.sim.world import make_world


def rights(scopes: list[str], grants: list[str]) -> RecordRights:
    overlay = make_world({1: 3}, [], {"a": 1}, [Scope(each) for each in scopes], publish=grants).overlay
    return overlay.rights_in("a", overlay.policy.scopes[0], 0)


def test_who_may_publish_everywhere_may_in_all_of_the_scope() -> None:
    found = rights(["plant/#"], ["#", "plant/a"])
    assert found == RecordRights("plant/#", (), ("plant/#",))
    assert all(map(found.allow, ("plant", "plant/a", "plant/a/b")))
    assert not any(map(found.allow, ("plants", "open/a", "$SYS/a")))


@pytest.mark.parametrize("topic", ["plant/secret", "plant/secret/a"])
def test_a_record_is_of_the_most_specific_scope(topic: str) -> None:
    found = rights(["plant/#", "plant/secret/#", "open/#", "#"], ["#"])
    assert found.within == ("plant/secret/#",)
    assert not found.allow(topic)
    assert found.allow("plant/a")


def test_a_narrow_grant_allows_what_it_covers_and_no_more() -> None:
    found = rights(["plant/#"], ["plant/+/temperature", "open/#"])
    assert found.granted == ("plant/+/temperature",)
    assert found.allow("plant/a/temperature")
    assert not any(map(found.allow, ("plant/a", "plant/a/pressure", "open/a")))


def test_rights_that_ended_allow_nothing() -> None:
    assert not rights(["plant/#"], []).allow("plant/a")


def test_rights_come_back_from_a_file_as_they_were() -> None:
    found = rights(["plant/#", "plant/s/#"], ["plant/\u00e9/#"])
    assert RecordRights.from_text(found.to_text()) == found


@pytest.mark.parametrize("text", ["", "[]", "{}", "[1,2]", "[1,2,3]", '["a",[]]'])
def test_what_is_no_rights_is_refused(text: str) -> None:
    with pytest.raises(BadFrame):
        RecordRights.from_text(text)


def test_all_is_allowed_where_nothing_lies_within_and_a_grant_covers_it() -> None:
    assert rights(["plant/#", "open/#"], ["#"]).is_all
    assert not rights(["plant/#", "plant/s/#"], ["#"]).is_all
    assert not rights(["plant/#"], ["plant/+"]).is_all
