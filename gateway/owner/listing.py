"""Update of the owner's description after an attachment, so that the next `overlay sign` agrees.

A line is added to the hand-written file; comments, order and all other text stay. The result is parsed and compared
with the intended content before it is written. If that fails, the file stays, and the owner is told the line.
"""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

import yaml

from gateway.base import PrivateFileError, write_private, write_public
from gateway.trust import TrustError, read_public

MAX_BYTES = 16 << 20  # of a description: stops a wrong path from being read
NOT_AS_EXPECTED = (LookupError, TypeError, ValueError, AttributeError, StopIteration, OSError)
"""Exceptions raised on a walk through YAML that does not have a description's form."""


def list_replica(description: Path, region: str, card: Path, address: str) -> bool:
    """Adds a replica to its region; returns True if the description lists the replica now."""
    return _list(
        description, ["regions", region, "members"], {"card": _relative(card, description), "address": address}
    )


def list_member(description: Path, region: str, card: Path, publish: list[str], read: list[str]) -> bool:
    """Adds a gateway or ingest job; returns True if the description lists the member now."""
    entry = {"card": _relative(card, description), "region": region, "publish": publish, "read": read}
    return _list(description, ["members"], entry)


def as_line(entry: dict[str, Any]) -> str:
    """Returns an entry as a line of YAML."""
    return "{" + ", ".join(f"{key}: {json.dumps(value)}" for key, value in entry.items()) + "}"


def _relative(card: Path, description: Path) -> str:
    """Returns the card's path relative to the description's folder if the card lies below, else the absolute path."""
    card, directory = card.resolve(), description.resolve().parent
    return str(card.relative_to(directory) if card.is_relative_to(directory) else card)


def _list(description: Path, where: list[str], entry: dict[str, Any]) -> bool:
    try:
        text = read_public(description, MAX_BYTES).decode()
        wanted = yaml.safe_load(text)
        _found(wanted, where).append(entry)
        at, line = _place(text, where, as_line(entry))
        changed = text[:at] + line + text[at:]
        if _sorted(yaml.safe_load(changed), where) != _sorted(wanted, where):
            return False
        is_private = not description.stat().st_mode & 0o077
        (partial(write_private, replace=True) if is_private else write_public)(description, changed.encode())
    except (TrustError, PrivateFileError, yaml.YAMLError, *NOT_AS_EXPECTED):
        return False
    return True


def _found(content: Any, where: list[str]) -> Any:
    """Returns the list at `where`; regions are found by their names."""
    for word in where:
        if isinstance(content, list):
            content = next(each for each in content if each["name"] == word) if content else {}
        else:
            content = content[word]
    return content


def _sorted(content: Any, where: list[str]) -> Any:
    """Returns the whole content with the list at `where` sorted, for a comparison without regard to its order."""
    _found(content, where).sort(key=str)
    return content


def _place(text: str, where: list[str], line: str) -> tuple[int, str]:
    """Returns the offset at the head of the list, whose position is exact, and the text to insert there."""
    node: Any = yaml.compose(text)
    for word in where:
        if isinstance(node, yaml.SequenceNode):
            node = next(each for each in node.value if _value(each, "name").value == word)
        else:
            node = _value(node, word)
    if node.flow_style:
        return node.start_mark.index + 1, line + (", " if node.value else "")
    return node.start_mark.index, f"- {line}\n{' ' * node.start_mark.column}"


def _value(node: Any, key: str) -> Any:
    return next(value for name, value in node.value if name.value == key)
