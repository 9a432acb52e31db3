"""What documents and code say of each other: every reference leads somewhere, and the site needs no other host."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
FOLDERS = ("keys", "bridge", "gateway", "spark_ingest", "configs", "tests", "docs")
TEXTS = sorted(
    path
    for top in (ROOT, *(ROOT / folder for folder in FOLDERS))
    for path in (top.glob("*.md") if top == ROOT else top.rglob("*"))
    if path.suffix in (".py", ".md", ".yaml") and path != Path(__file__)
)
SECTIONS = re.compile(r"^#+ (\d+(?:\.\d+)*)\.? ", re.MULTILINE)
OURS = re.compile(r"docs/(?P<name>[\w/-]+\.md)\s+(?:#\s+)?(?P<numbers>§[\d.]+(?:(?:,| and)\s+§[\d.]+)*)")
NUMBER = re.compile(r"§(\d[\d.]*(?<=\d))")
STANDARD = re.compile(r"(?:MQTT (?:5\.0|3\.1\.1|3\.1)|RFC \d+|FIPS \d+|NIST SP [\w-]+)")
"""Standards have sections of their own, which we do not check."""


def name_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def sections_of(document: str) -> set[str]:
    return set(SECTIONS.findall((ROOT / document).read_text("utf-8")))


def dangling(text: str, path: str) -> Iterator[str]:
    """References by `§` that a reader cannot follow."""
    for found in OURS.finditer(text):
        document = f"docs/{found['name']}"
        known = sections_of(document) if (ROOT / document).is_file() else set()
        yield from (f"{document} has no §{each}" for each in NUMBER.findall(found["numbers"]) if each not in known)
    rest = OURS.sub("", text)
    if not STANDARD.search(rest):
        # Pages of the site name sections of the protocol in links; the build of the site checks where those lead.
        known = sections_of("docs/protocol.md") if path.startswith("docs/") else set()
        yield from (f"§{each}, of what?" for each in NUMBER.findall(rest) if each not in known)


@pytest.mark.parametrize("path", TEXTS, ids=name_of)
def test_every_section_that_is_named_exists(path: Path) -> None:
    assert not list(dangling(path.read_text("utf-8"), name_of(path)))


@pytest.mark.parametrize("text", [
    "as docs/protocol.md §99 says", "docs/protocol.md §3, §99", "docs/nothing.md §1", "see §4.6",
])  # fmt: skip
def test_the_test_of_sections_sees_what_it_is_for(text: str) -> None:
    assert list(dangling(text, "gateway/x.py"))


@pytest.mark.parametrize("text", ["docs/protocol.md §3.1, §4", "MQTT 5.0 §4.7", "docs/protocol.md\n§2"])
def test_the_test_of_sections_lets_true_ones_pass(text: str) -> None:
    assert not list(dangling(text, "gateway/x.py"))
