"""The console is put together with the plugin whose users may change, and with tokens that outlive a restart."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from gateway.auth.api_tokens import FILE
from gateway.auth.dynamic import DynamicPlugin
from gateway.base import PrivateFileError
from gateway.base.config_console import Console
from gateway.base.followed import FollowedMessages
from gateway.console.assembly import make_server
from gateway.console.shown import LogTail

NOW = 1_800_000_000.0


def server(data: Path | None, *plugins: object) -> Any:
    host = SimpleNamespace(plugins=list(plugins), standing=lambda user: "", follow_users=lambda follower: None)
    broker: Any = SimpleNamespace(host=host)
    return make_server(
        Console(), data, broker, dict, "entities", LogTail(), FollowedMessages("site", lambda is_on: None)
    )


def test_the_dynamic_plugin_is_found_among_others(tmp_path: Path) -> None:
    dynamic = object.__new__(DynamicPlugin)
    assert server(None, object(), dynamic)._answering._editing._dynamic is dynamic
    assert server(None, object())._answering._editing._dynamic is None


def test_tokens_are_kept_in_the_data_directory_if_there_is_one(tmp_path: Path) -> None:
    secret, token = server(tmp_path)._answering._editing._tokens.issue("ann", 3, 90, "", NOW)
    assert (tmp_path / FILE).stat().st_mode & 0o077 == 0
    assert secret not in (tmp_path / FILE).read_text()
    again = server(tmp_path)
    assert [one.id for one in again._answering._editing._tokens.tokens_of("ann", NOW)] == [token.id]
    assert again._tokens is again._answering._editing._tokens, "one set of tokens"
    assert list(server(None)._answering._editing._tokens.tokens_of("ann", NOW)) == []


def test_tokens_that_others_can_read_are_refused(tmp_path: Path) -> None:
    server(tmp_path)._answering._editing._tokens.issue("ann", 3, 90, "", NOW)
    (tmp_path / FILE).chmod(0o644)
    with pytest.raises(PrivateFileError, match="chmod 600"):
        server(tmp_path)
