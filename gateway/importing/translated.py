"""What becomes of a `mosquitto.conf`, gathered while it is translated."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gateway.importing.mosquitto_conf import Directive


@dataclass(slots=True)
class Translated:
    """`settings`: our YAML as dictionaries. `files`: to copy into the new folder, by their name there. `secrets`:
    contents of private files by name. `notes`: one line each. `database`: Mosquitto's, if it keeps one."""

    settings: dict[str, Any] = field(default_factory=dict)
    files: dict[str, Path] = field(default_factory=dict)
    secrets: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    database: Path | None = None

    def leave(self, one: Directive, why: str) -> None:
        self.notes.append(f"{one.where}: {one.name} is not carried over: {why}")

    def needless(self, one: Directive, why: str) -> None:
        self.notes.append(f"{one.where}: {one.name} is not needed: {why}")
