"""`bridges` of the configuration: what is refused, and that paths are taken from the folder of the file."""

from __future__ import annotations

from pathlib import Path

import pytest

from gateway.base import load
from gateway.base.config import ConfigError, parse

ONE = {"topics": [{"filter": "a"}]}


@pytest.mark.parametrize(
    ("bridge", "said"),
    [
        ({"addresses": ["nowhere"]}, "not HOST:PORT"),
        ({"addresses": ["a:0"]}, "not HOST:PORT"),
        ({"addresses": []}, "addresses"),
        ({"addresses": ["a:1"], "password_file": "p"}, "without username"),
        ({"addresses": ["a:1"], "tls": {"certfile": "c"}}, "go together"),
        ({"addresses": ["a:1"], "topics": []}, "topics"),
        ({"addresses": ["a:1"], "adresses": 1}, "did you mean addresses"),
    ],
)
def test_mistakes_are_one_line(bridge: dict[str, object], said: str) -> None:
    with pytest.raises(ConfigError, match=r"bridges\.m") as error:
        parse({"bridges": {"m": {**ONE, **bridge}}})
    assert said in str(error.value)
    assert "\n" not in str(error.value)


def test_paths_are_taken_from_the_folder_of_the_file(tmp_path: Path) -> None:
    (tmp_path / "b.yaml").write_text(
        "bridges:\n  my-cloud:\n    addresses: [a:1]\n    username: u\n    password_file: secret\n"
        "    tls: {cafile: ca.pem}\n    topics: [{filter: a}]\n"
    )
    bridge = load(tmp_path / "b.yaml").bridges["my-cloud"]
    assert bridge.password_file == tmp_path / "secret"
    assert bridge.tls is not None
    assert bridge.tls.cafile == tmp_path / "ca.pem"
