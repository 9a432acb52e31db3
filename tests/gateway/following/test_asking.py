"""One question to several members: what one names, the others show; lines come in the order of their times."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from gateway.base.followed import FollowedMessages, FollowError
from gateway.following import FollowServer, Question, follow
from tests.gateway.harness import on_loop


class Member:
    """A member in this process, whose clock stands still between two `at`."""

    def __init__(self, directory: Path, name: str) -> None:
        self.data, self.at = directory / name, 0.0
        self.data.mkdir()
        self.followed = FollowedMessages(name, lambda is_on: None, lambda: self.at)
        self.server = FollowServer(self.data, self.followed)


@on_loop
async def test_a_replica_shows_the_message_that_the_gateway_named(tmp_path: Path) -> None:
    members = [Member(tmp_path, name) for name in ("site", "r1")]
    for member in members:
        await member.server.start()
    site, replica = members
    begun: asyncio.Future[list[str]] = asyncio.get_running_loop().create_future()
    found: list[dict[str, Any]] = []
    asked = Question({"client": "", "topic": "plant/#", "address": ""}, count=4)
    following = asyncio.ensure_future(
        follow([member.data for member in members], asked, found.append, begun.set_result)
    )
    assert await asyncio.wait_for(begun, 10) == ["site", "r1"]
    replica.at = 3.0
    replica.followed.say_step("came from member", message="site/9")  # before anybody named it
    replica.followed.say_step("came from member", message="site/10")
    site.at = 1.0
    site.followed.say_step("numbered", message="site/9", topic="plant/a")
    site.at = 2.0
    site.followed.say_step("batched", message="site/9", then="site/8")
    replica.at = 4.0
    replica.followed.say_step("came from member", message="site/8")
    assert await asyncio.wait_for(following, 10) == 4
    assert [(one["member"], one["message"]) for one in found] == [
        ("site", "site/9"), ("site", "site/9"), ("r1", "site/9"), ("r1", "site/8"),
    ]  # fmt: skip
    for member in members:
        await member.server.stop()


@on_loop
async def test_it_ends_after_its_seconds_and_with_the_members(tmp_path: Path) -> None:
    member = Member(tmp_path, "site")
    await member.server.start()
    wish = {"client": "", "topic": "", "address": ""}
    assert await follow([member.data], Question(wish, seconds=0.05), print, lambda names: None) == 0
    began = asyncio.Event()
    going = asyncio.ensure_future(follow([member.data], Question(wish), print, lambda names: began.set()))
    await asyncio.wait_for(began.wait(), 10)
    await member.server.stop()
    assert await asyncio.wait_for(going, 10) == 0


@on_loop
async def test_a_member_that_does_not_run_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(FollowError, match=r"nobody answers .*; start the member with `veilmq broker`"):
        await follow([tmp_path], Question({}), print, lambda names: None)
    with pytest.raises(FollowError, match="nobody answers"):
        await follow([tmp_path / "absent"], Question({}), print, lambda names: None)
