"""How we log in at a hosted broker: what goes together, and from where relative paths count."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from gateway.base.config_hosted import Hosted

PATHS = {"certfile": "a.pem", "keyfile": "a.key"}


@pytest.mark.parametrize("content", [{}, {"username": "u"}, {"username": "u", "password_file": "p"}, PATHS])
def test_what_is_whole(content: dict[str, Any]) -> None:
    assert Hosted.model_validate(content)


@pytest.mark.parametrize(
    ("content", "word"),
    [
        ({"certfile": "a.pem"}, "keyfile"),
        ({"keyfile": "a.key"}, "certfile"),
        ({"password_file": "p"}, "username"),
        ({"password": "in clear"}, "password"),
    ],
)
def test_what_is_half_is_refused_by_name(content: dict[str, Any], word: str) -> None:
    with pytest.raises(ValidationError, match=word):
        Hosted.model_validate(content)


def test_relative_paths_count_from_the_file_that_names_them(tmp_path: Path) -> None:
    found = Hosted.model_validate({**PATHS, "username": "u", "password_file": "/etc/p"}).anchored(tmp_path)
    assert (found.certfile, found.keyfile) == (tmp_path / "a.pem", tmp_path / "a.key")
    assert (found.password_file, found.username) == (Path("/etc/p"), "u")
    assert Hosted().anchored(tmp_path) == Hosted()
