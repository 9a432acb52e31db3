"""`console` of the configuration: no password crosses a network in clear."""

from __future__ import annotations

from pathlib import Path

import pytest

from gateway.base import load
from gateway.base.config import ConfigError, parse


@pytest.mark.parametrize(
    ("console", "said"),
    [
        ({"bind": "0.0.0.0:8080"}, "in clear"),
        ({"bind": "example.net:8080"}, "in clear"),
        ({"bind": "127.0.0.1"}, "not HOST:PORT"),
        ({"bind": "127.0.0.1:99999"}, "not HOST:PORT"),
        ({"certfile": "c"}, "go together"),
        ({"admin": ["ann"]}, "did you mean admins"),
    ],
)
def test_mistakes_are_one_line(console: dict[str, object], said: str) -> None:
    with pytest.raises(ConfigError, match="console") as error:
        parse({"console": console})
    assert said in str(error.value)


def test_paths_are_taken_from_the_folder_of_the_file(tmp_path: Path) -> None:
    (tmp_path / "b.yaml").write_text("console: {bind: '0.0.0.0:8443', certfile: c.pem, keyfile: k.pem}\n")
    console = load(tmp_path / "b.yaml").console
    assert console is not None
    assert console.certfile == tmp_path / "c.pem"
    assert not console.write
