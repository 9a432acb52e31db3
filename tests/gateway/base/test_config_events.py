"""`events` of the configuration: paths are taken from the folder of the file."""

from __future__ import annotations

from pathlib import Path

from gateway.base import load


def test_paths_are_taken_from_the_folder_of_the_file(tmp_path: Path) -> None:
    (tmp_path / "b.yaml").write_text("events: [{url: 'https://a.example/x', kinds: [connected], secret_file: s}]\n")
    (event,) = load(tmp_path / "b.yaml").events
    assert event.secret_file == tmp_path / "s"
