"""Plans of new overlays: names, regions, what is refused, and that every member's YAML loads."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.base import parse
from gateway.owner.description import Description
from gateway.setup.plan import MEMBERS_MAX, Plan, PlannedMember, SetupError, description, settings, title
from keys.identity import Role


def members(plan: Plan) -> list[PlannedMember]:
    return [
        PlannedMember(name, role, f"{name}.test:8883", "0.0.0.0:8883", "127.0.0.1:9464",
                      "" if role is Role.KEY_SERVER else plan.region_of(name))
        for name, role in plan.member_roles.items()
    ]  # fmt: skip


PLANS = st.builds(
    Plan,
    replicas=st.integers(3, 7),
    gateways=st.integers(1, 6),
    regions=st.integers(1, 4),
    key_servers=st.sampled_from([0, 4, 7]),
)


@given(PLANS)
def test_every_region_has_its_replicas_and_gateways_take_turns(plan: Plan) -> None:
    plan.check_plan()
    made = members(plan)
    replicas = Counter(member.region for member in made if member.role is Role.REPLICA)
    assert set(replicas.values()) == {plan.replicas}
    assert len(replicas) == plan.regions
    gateways = Counter(member.region for member in made if member.role is Role.GATEWAY)
    assert max(gateways.values()) - min(gateways.get(region, 0) for region in replicas) <= 1
    assert len({member.name for member in made}) == len(made)
    assert [member.role for member in made][-1] is Role.GATEWAY, "gateways start last"


@given(PLANS)
def test_what_the_owner_signs_is_a_description(plan: Plan) -> None:
    content = description(plan, members(plan), "plant")
    read = Description.model_validate(content)
    assert [region.name for region in read.regions] == [f"region{number}" for number in range(1, plan.regions + 1)]
    assert len(content["edges"]) == plan.regions - 1
    assert (read.key_service is not None) is bool(plan.key_servers)
    assert len(read.members) == plan.gateways


@given(PLANS)
def test_every_members_yaml_is_a_configuration(plan: Plan) -> None:
    for member in members(plan):
        read = parse(settings(member, plan.protect), directory=Path("/nowhere"))
        assert read.overlay is not None
        assert read.listeners["default"].bind == "0.0.0.0:8883"
        assert read.listeners["default"].overlay is (member.role is not Role.GATEWAY)
        assert not read.allow_anonymous, "others reach it"
        assert bool(read.plugins) is (member.role is Role.GATEWAY)
        assert (read.overlay.key_server is not None) is (member.role is Role.KEY_SERVER)
        assert [each.filter for each in read.overlay.protect] == (
            list(plan.protect) if member.role is Role.GATEWAY else []
        )


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"replicas": 2}, "--replicas 2: .*take 3 or more"),
        ({"gateways": 0}, "take --gateways 1 or more"),
        ({"regions": 0}, "at least one region"),
        ({"key_servers": 1}, "--key-servers 1: .*take 4"),
        ({"key_servers": 3}, "--key-servers 3: .*take 4"),
        ({"gateways": MEMBERS_MAX}, "203 members are more than 200"),
        ({"addresses": {"r4": "a:1"}}, "there is no r4; members are r1, r2, r3, g1, g2"),
    ],
)
def test_what_no_overlay_can_be(wrong: dict[str, Any], said: str) -> None:
    with pytest.raises(SetupError, match=said):
        Plan(**wrong).check_plan()


@pytest.mark.parametrize(("address", "host"), [("a.test:1", "a.test"), ("[::1]:8883", "::1")])
def test_the_host_is_what_a_certificate_names(address: str, host: str) -> None:
    assert PlannedMember("r1", Role.REPLICA, address, address, "127.0.0.1:1").host == host


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "[::1]"])
def test_only_what_this_machine_alone_reaches_lets_anybody_in(host: str) -> None:
    member = PlannedMember("g1", Role.GATEWAY, f"{host}:1883", f"{host}:1883", "127.0.0.1:9464", "region1")
    assert member.is_here
    assert parse(settings(member)).allow_anonymous


@pytest.mark.parametrize("host", ["g1.test", "127.0.0.1"])
def test_the_title_is_a_comment_and_tells_a_gateway_to_make_logins(host: str) -> None:
    gateway = PlannedMember("g1", Role.GATEWAY, f"{host}:1883", f"{host}:1883", "127.0.0.1:9464", "region1")
    lines = title(gateway).splitlines()
    assert all(line.startswith("# ") for line in lines)
    assert "veilmq broker -c broker.yaml" in lines[0]
    assert "veilmq passwd" in title(gateway)
    assert "passwd" not in title(members(Plan())[0])
