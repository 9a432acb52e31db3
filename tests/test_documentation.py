"""What documents and code say of each other: every reference leads somewhere, and the site needs no other host."""

from __future__ import annotations

import ast
import gc
import importlib
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from gateway.base import Limits
from spark_ingest.options import NAMES
from spark_ingest.writing.publish_options import _NAMES as WRITING

ROOT = Path(__file__).parent.parent
FOLDERS = ("keys", "bridge", "gateway", "papers", "spark_ingest", "configs", "tests", "docs")
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


@cache
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
        pages = ("docs/protocol.md", "docs/protocol-options.md") if path.startswith("docs/") else ()
        known = {section for page in pages for section in sections_of(page)}
        yield from (f"§{each}, of what?" for each in NUMBER.findall(rest) if each not in known)


def test_every_section_that_is_named_exists() -> None:
    found = {name: list(dangling(path.read_text("utf-8"), name)) for path in TEXTS if (name := name_of(path))}
    assert not {name: lines for name, lines in found.items() if lines}


@pytest.mark.parametrize("text", [
    "as docs/protocol.md §99 says", "docs/protocol.md §3, §99", "docs/nothing.md §1", "see §4.6",
])  # fmt: skip
def test_the_test_of_sections_sees_what_it_is_for(text: str) -> None:
    assert list(dangling(text, "gateway/x.py"))


@pytest.mark.parametrize("text", ["docs/protocol.md §3.1, §4", "MQTT 5.0 §4.7", "docs/protocol.md\n§2"])
def test_the_test_of_sections_lets_true_ones_pass(text: str) -> None:
    assert not list(dangling(text, "gateway/x.py"))


NAMED = re.compile(r"`(?P<path>(?:keys|bridge|gateway|spark_ingest|configs|tests|docs)/[\w./-]+)(?:::(?P<test>\w+))?`")
IMPORTED = re.compile(r"^(?:from (?P<module>[\w.]+) import (?P<names>[\w, ]+)|import (?P<whole>[\w.]+))", re.MULTILINE)
PAGES = [path for path in TEXTS if path.suffix == ".md"]


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_file_and_test_that_a_page_names_exists(page: Path) -> None:
    for found in NAMED.finditer(page.read_text("utf-8")):
        path = ROOT / found["path"]
        assert path.exists(), f"{name_of(page)} names {found['path']}"
        assert not found["test"] or f"def {found['test']}(" in path.read_text("utf-8"), f"no test {found['test']}"


@pytest.fixture
def generate(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Lets modules of the site be imported. They parse code: to look for garbage meanwhile would take longer."""
    monkeypatch.syspath_prepend(str(ROOT / "docs" / "generate"))
    gc.disable()
    yield
    gc.enable()


def test_every_invariant_and_attack_has_a_marked_test_and_every_marker_a_row(generate: None) -> None:
    invariants = importlib.import_module("invariants")
    page = (ROOT / "docs" / "explanation" / "invariants.md").read_text("utf-8")
    found = dict(invariants.rows(page))
    tests, known = invariants.holders(), list(found.values())
    assert [known.count((kind, 1)) for kind in invariants.KINDS] == [1, 1]
    for kind in invariants.KINDS:
        numbers = [number for each, number in known if each == kind]
        assert numbers == list(range(1, len(numbers) + 1)), "a number stays with its row; a new row has the next one"
        assert len(numbers) > 60
    not_promised = {row for line, row in found.items() if "not promised" in line}
    assert not set(known) - tests.keys() - not_promised, "mark a test that fails if it is broken"
    assert not tests.keys() - set(known), "markers of rows that the page does not have"
    assert f"`{tests['attack', 1][0]}`" in invariants.with_tests(page)


def test_markers_of_a_function_and_of_a_module_are_found(generate: None) -> None:
    source = (
        "pytestmark = [pytest.mark.slow, pytest.mark.invariant(7, 8)]\n"
        "class TestA:\n    @pytest.mark.attack(3)\n    @other\n    async def test_b(self): ...\n"
    )
    found = set(importlib.import_module("invariants").marked(ast.parse(source)))
    assert found == {("", ("invariant", 7)), ("", ("invariant", 8)), ("test_b", ("attack", 3))}


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_what_the_examples_of_a_page_import_is_there(page: Path) -> None:
    for block in re.findall(r"^```python\n(.*?)^```", page.read_text("utf-8"), re.DOTALL | re.MULTILINE):
        ast.parse(block.replace(".writeStream...", ".writeStream"))
        for found in IMPORTED.finditer(block):
            module = importlib.import_module(found["module"] or found["whole"])
            for name in (found["names"] or "").split(","):
                assert not name.strip() or hasattr(module, name.strip()), f"{module.__name__} has no {name.strip()}"


@pytest.mark.parametrize("package", ["bridge", "gateway", "papers", "spark_ingest"])
def test_the_reading_order_of_a_package_names_every_room(package: str) -> None:
    said = (ROOT / package / "README.md").read_text("utf-8")
    rooms = {path.parent.name for path in (ROOT / package).glob("*/__init__.py")}
    unnamed = {room for room in rooms if f"`{room}`" not in said}
    assert not unnamed, f"give these rooms a row in the reading order of {package}/README.md: {unnamed}"


def test_the_tables_of_spark_list_every_option() -> None:
    said = (ROOT / "docs" / "reference" / "spark.md").read_text("utf-8").lower()
    unsaid = {name for name in NAMES | WRITING if f"`{name}`" not in said}
    assert not unsaid, f"give these options a row in docs/reference/spark.md: {unsaid}"


def test_the_readme_is_short() -> None:
    assert (ROOT / "README.md").stat().st_size <= 10_000


def test_the_changelog_keeps_its_form() -> None:
    headings = re.findall(r"^##+ (.*)$", (ROOT / "CHANGELOG.md").read_text("utf-8"), re.MULTILINE)
    assert headings[0] == "[Unreleased]"
    kinds = {"Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"}
    assert all(heading in kinds or re.match(r"\[[\w.]+\]( - \d{4}-\d\d-\d\d)?$", heading) for heading in headings)


@pytest.mark.slow
def test_the_site_builds_without_a_warning_and_needs_no_other_host(tmp_path: Path) -> None:
    build = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(tmp_path)]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    result = subprocess.run(build, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert (result.returncode, result.stdout, result.stderr) == (0, "", "")
    tags = re.compile(r"<(?:script|link|img|iframe|source)\b[^>]*\b(?:src|href)=[\"']?(?:https?:)?//[^>]*")
    styles = re.compile(r"(?:url\(|@import)\s*[\"']?(?:https?:)?//[^)\"']*")
    pages = sorted(tmp_path.rglob("*.html"))
    assert len(pages) > 20
    found = {tag for page in pages for tag in tags.findall(page.read_text("utf-8")) if 'rel="canonical"' not in tag}
    for path in [*pages, *tmp_path.rglob("*.css"), *tmp_path.rglob("*.svg")]:
        found |= set(styles.findall(path.read_text("utf-8")))
    assert not found


OWNERS = {
    *("connection", "client", "user", "address", "prefix", "member"),
    *("publisher", "entity", "message", "owner", "operator", "none"),
}
"""Values of the column *fair by* of `reference/bounds.md`."""


def test_every_bound_says_whose_share_it_is() -> None:
    """A bound without an owner is one that a single client may spend for all."""
    page = (ROOT / "docs" / "reference" / "bounds.md").read_text("utf-8")
    explained = " ".join(re.findall(r"^\| ([a-z, ]+) \| [^|]*\|$", page, re.MULTILINE))
    assert set(re.findall("[a-z]+", explained)) >= OWNERS
    rows = re.findall(
        r"^\| (`(?:[a-z_]+\.[\w.]+|\w+)`[^|]*) \|(.*)\|$", page.partition("\n## All others")[0], re.MULTILINE
    )
    owners = {
        name: cells.split("|")[-1].strip()
        for name, cells in rows
        if not name.startswith(("`hold`", "`drop_", "`when_full`"))
    }
    unknown = {name: owner for name, owner in owners.items() if owner not in OWNERS}
    assert not unknown, f"the last cell of these rows of docs/reference/bounds.md is none of OWNERS: {unknown}"
    lacking = {f"`{name}`" for name in Limits.model_fields} - owners.keys()
    assert not lacking, f"give these limits a row in docs/reference/bounds.md: {lacking}"


def test_every_bound_of_the_code_is_on_the_page_with_its_owner(generate: None) -> None:
    """Rows of the page name most; the rest is listed by the table made from the code, with its comment there."""
    bounds = importlib.import_module("bounds")
    page = (ROOT / "docs" / "reference" / "bounds.md").read_text("utf-8")
    found, said, listed = bounds.comments(), bounds.named(page), bounds.FAIR_BY
    assert len(found) > 250
    assert not found.keys() - said - listed.keys(), (
        "give each a row of docs/reference/bounds.md, or an owner in fair_by.py"
    )
    assert not listed.keys() & said, "they have a row: take them off docs/generate/fair_by.py"
    assert not listed.keys() - found.keys(), "they are gone: take them off docs/generate/fair_by.py"
    assert not {name for name in listed if not found[name]}, "say at the constant what it is for"
    assert set(listed.values()) <= OWNERS
    table = bounds.others(page)
    assert all(f"| `{name}` | " in table for name in listed)
    assert "keys.records.RECORDS_MAX` | 1,024 | publications in one batch | message |" in table


def test_a_new_bound_without_an_owner_is_found(generate: None) -> None:
    bounds = importlib.import_module("bounds")
    source = 'A_MAX = 1  # of one\nB_MAX, C = 2, 3\nD_BURST: int = (\n    4\n)\n"""Of\nall."""\n_E_MAX = 5\n'
    assert dict(bounds._bounds(source)) == {"A_MAX": "of one", "B_MAX": "", "D_BURST": "Of all."}


def test_every_table_of_the_code_has_an_owner_and_a_bound(generate: None) -> None:
    """A table, queue, allowance or registry without an owner is one that a single client may fill for all."""
    holders, bounds = importlib.import_module("holders"), importlib.import_module("bounds")
    kinds, owned = holders.tables(), holders.owners()
    assert len(kinds) > 500
    assert not kinds.keys() - owned.keys(), "say in docs/generate/table_owners.py by whom each is fair, and its bound"
    assert not owned.keys() - kinds.keys(), "they are gone: take them off docs/generate/table_owners.py"
    assert {owner for owner, _ in owned.values()} <= OWNERS
    page = (ROOT / "docs" / "reference" / "bounds.md").read_text("utf-8")
    wrong = {name: said for name in kinds if (said := _untrue(name, *owned[name], kinds, owned, bounds.owners(page)))}
    assert not wrong, f"correct these lines of docs/generate/table_owners.py: {wrong}"


def _untrue(
    name: str, owner: str, why: str, kinds: dict[str, str], owned: dict[str, tuple[str, str]], bounds: dict[str, str]
) -> str:
    """Returns what is wrong with the owner of a table; empty for what holds as far as the code tells."""
    holders = importlib.import_module("holders")
    holder = name.rpartition(".")[0]
    if why == "fair":
        return "" if kinds[name] in holders.FAIR else f"a {kinds[name]} is no fair table"
    if why == "document":
        return "" if owner in ("member", "publisher", "owner", "operator") else "clients are in no document"
    if why in ("turn", "tool", "memory"):
        return "" if owner == "none" else f"{why} is of nobody"
    if why == "beside":
        room = holder.rpartition(".")[0].rpartition(".")[0]
        others = {each for each, said in owned.items() if said[0] == owner and said[1] != "beside"}
        return "" if any(each.startswith(f"{room}.") for each in others) else "no table of this owner is beside it"
    if why in holders.WHY:
        return ""
    if why not in bounds:
        return f"{why} is no bound of the page"
    return "" if bounds[why] == owner else f"{why} is fair by {bounds[why]}"


def test_a_new_table_without_an_owner_is_found(tmp_path: Path, generate: None) -> None:
    path = tmp_path / "new.py"
    path.write_text(
        "class A:\n    def __init__(self, n):\n        self.a: dict[str, int] = {}\n        self.b = FairTable(3)\n"
        "        self.c = n\n        self.d, x = 1, []\n        self.e = asyncio.Queue()\n"
        "class B:\n    f: list[int] = field(default_factory=list)\n    g: int = field(default=3)\n"
        "    h: Any = field(default_factory=lambda: deque(maxlen=3))\n"
    )
    holders = importlib.import_module("holders")
    found = {"A.a": "dict", "A.b": "FairTable", "A.e": "Queue", "B.f": "list", "B.h": "deque"}
    assert dict(holders.tables_of(path)) == found


def _functions_named(text: str) -> list[str]:
    return re.findall(r"`((?:keys|bridge|gateway|spark_ingest)/[\w/]+\.py:[\w.]+)`", text)


@pytest.mark.parametrize("named", _functions_named((ROOT / "docs/explanation/lifecycles.md").read_text("utf-8")))
def test_a_lifecycle_names_a_function_that_exists(named: str) -> None:
    path, _, name = named.partition(":")
    node: ast.AST = ast.parse((ROOT / path).read_text("utf-8"))
    for part in name.split("."):
        kinds = ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
        found = [n for n in ast.iter_child_nodes(node) if isinstance(n, kinds) and n.name == part]
        assert found, f"{path} has no {name}"
        node = found[0]
