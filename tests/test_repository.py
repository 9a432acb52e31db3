"""Rules of the repository that a reader would otherwise have to enforce by hand.

Import arrows are import-linter's business (`pyproject.toml`); here are sizes, words, purity and the wheel.
"""

from __future__ import annotations

import ast
import gc
import importlib.util
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from bridge.contract.figures import FigureName
from gateway.base.log_events import LogEvent
from tests.sleeping import SLEEPS

ROOT = Path(__file__).parent.parent
PACKAGES = ("keys", "bridge", "gateway", "papers", "spark_ingest")
MODULES = sorted(path for package in PACKAGES for path in (ROOT / package).rglob("*.py"))
SHELLS = {"papers/command.py", "papers/liar.py"}
PURE = [
    path
    for path in MODULES
    if path.relative_to(ROOT).parts[0] in ("keys", "bridge", "papers")
    and path.parent.name != "simulating"
    and path.relative_to(ROOT).as_posix() not in SHELLS
]
TEXT_SUFFIXES = {".py", ".md", ".yaml", ".yml", ".toml", ".json", ".sh", ".js", ".txt", ".cfg", ""}
MAX_FUNCTION_LINES = 70
LONG_FUNCTIONS = {"gateway/mqtt5/codec.py:_parse"}
"""One loop that must not call: in CPython a call costs as much as parsing a small PUBLISH."""
WHEEL_SUFFIXES = {
    ".py",
    ".pyi",
    ".typed",
    ".yaml",
    ".md",
    ".json",
    ".js",
    ".css",
    ".html",
    ".service",
    ".timer",
    ".sysusers",
}

# An absolute path works on one machine only; the others refer to what a reader of the repository cannot see.
FORBIDDEN = re.compile(r"/home/\w|/root/|/work/|/Users/\w|\bissue #\d|\bTODO\b|\bFIXME\b|\bXXX\b", re.IGNORECASE)
CLOCKS = {"now", "utcnow", "today", "time", "time_ns", "monotonic", "perf_counter"}
IMPURE_CALLS = {"open", "print", "input", "exec", "eval", "__import__", "breakpoint"}
IMPURE_MODULES = {
    "asyncio", "io", "logging", "multiprocessing", "os", "pathlib", "random", "secrets", "select", "selectors",
    "shutil", "signal", "socket", "sqlite3", "ssl", "subprocess", "sys", "tempfile", "threading", "time", "urllib3",
    "uuid",
}  # fmt: skip


@cache
def parsed(path: Path) -> ast.Module:
    """The tree of a module: six tests walk all of them."""
    return ast.parse(path.read_text("utf-8"))


@pytest.fixture(scope="module", autouse=True)
def _trees_end_with_this_file() -> Iterator[None]:
    """Looks for no garbage meanwhile: trees hold none, and looking takes longer than parsing."""
    gc.disable()
    yield
    parsed.cache_clear()
    gc.enable()


def tracked_texts() -> Iterator[Path]:
    top = [p for p in ROOT.iterdir() if p.is_file() and p.name != ".git"]  # a file in a worktree
    below = [
        p for name in (*PACKAGES, "configs", "docs", "tests", ".ci") for p in (ROOT / name).rglob("*") if p.is_file()
    ]
    for path in sorted(top + below):
        if path.suffix in TEXT_SUFFIXES and "__pycache__" not in path.parts and path != Path(__file__):
            yield path


def name_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def test_a_module_says_what_it_is_for() -> None:
    silent = [name_of(path) for path in MODULES if path.stat().st_size and not ast.get_docstring(parsed(path))]
    assert not silent, f"begin these modules with a docstring: {silent}"


def test_functions_are_short() -> None:
    long = {
        f"{name_of(path)}:{node.name}"
        for path in MODULES
        for node in ast.walk(parsed(path))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and (node.end_lineno or node.lineno) - node.lineno >= MAX_FUNCTION_LINES
    }
    assert not long - LONG_FUNCTIONS, f"split these, at most {MAX_FUNCTION_LINES} lines each"
    assert not LONG_FUNCTIONS - long, "they are short now: take them off LONG_FUNCTIONS in tests/test_repository.py"


def test_no_path_of_one_machine_and_nothing_left_to_do() -> None:
    found = [
        f"{name_of(path)}:{number}: {line.strip()[:80]}"
        for path in tracked_texts()
        for number, line in enumerate(path.read_text("utf-8").splitlines(), 1)
        if FORBIDDEN.search(line)
    ]
    assert not found, "\n".join(found)


def impurities(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name.split(".")[0] in IMPURE_MODULES:
                    yield f"line {node.lineno}: import {alias.name}"
        elif isinstance(node, ast.ImportFrom) and not node.level:
            if (node.module or "").split(".")[0] in IMPURE_MODULES:
                yield f"line {node.lineno}: from {node.module}"
        elif isinstance(node, ast.Call):
            called = node.func
            if isinstance(called, ast.Name) and called.id in IMPURE_CALLS:
                yield f"line {node.lineno}: {called.id}()"
            if (
                isinstance(called, ast.Attribute)
                and called.attr in CLOCKS
                and isinstance(called.value, ast.Name | ast.Attribute)
                and ast.unparse(called.value).split(".")[-1] in ("time", "datetime", "date")
            ):
                yield f"line {node.lineno}: {ast.unparse(called)}()"
            if isinstance(called, ast.Attribute) and called.attr == "generate" and not (node.args or node.keywords):
                yield f"line {node.lineno}: {ast.unparse(called)}() draws randomness"
        elif isinstance(node, ast.AsyncFunctionDef | ast.Await):
            yield f"line {node.lineno}: asynchronous code"


def test_keys_and_bridge_are_pure() -> None:
    found = {name_of(path): lines for path in PURE if (lines := list(impurities(parsed(path))))}
    assert not found, f"pass time, randomness and bytes in, or move the code to gateway/: {found}"


@pytest.mark.parametrize("code", [
    "open('x')", "import os", "from os import path", "import time\ntime.time()", "datetime.now()",
    "datetime.datetime.utcnow()", "import random", "from secrets import token_bytes", "async def f(): pass",
    "Ed25519PrivateKey.generate()",
])  # fmt: skip
def test_the_purity_test_sees_what_it_is_for(code: str) -> None:
    assert list(impurities(ast.parse(code)))


def test_how_regions_are_joined_is_asked_of_the_topology_alone() -> None:
    """Another routing, or a tree that changes, must not touch those who ask. The owner's and operator's side reads the
    document itself."""
    asks = re.compile(r"overlay\.(path|neighbours|key_hops|hops_between)\(")
    rooms = ("publisher", "replica", "reader", "wire", "groups", "membership")
    modules = [path for path in MODULES if path.relative_to(ROOT).parts[0] == "bridge" and path.parent.name in rooms]
    assert len(modules) > 30
    asking = [name_of(path) for path in modules if asks.search(path.read_text("utf-8"))]
    assert not asking, f"ask an object of bridge/topology/topology.py, not the overlay: {asking}"


def has_logic(tree: ast.Module) -> bool:
    """Whether a function does more than stand for others' (Protocols) or refuse."""
    return any(
        not isinstance(statement, ast.Pass | ast.Raise)
        and not (isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant))
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        for statement in node.body
    )


def test_every_module_with_logic_has_tests_of_its_own() -> None:
    """`keys/frames.py` has `tests/keys/test_frames.py`; a room's modules lie in the folder of its name."""
    lacking = [
        name_of(path)
        for path in MODULES
        if path.name != "__init__.py"
        and has_logic(parsed(path))
        and not (ROOT / "tests" / path.relative_to(ROOT)).with_name(f"test_{path.name}").exists()
    ]
    assert not lacking, f"give these a test file of their own: {lacking}"


TWO_OF_A_NAME = {
    "TracedEntity": "the library for programs, and the machine in it",
    "Tracker": "the library for programs, and the machine in it",
}
"""Public classes that share a name, and why."""


def public_definitions() -> Iterator[tuple[Path, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef]]:
    for path in MODULES:
        for node in parsed(path).body:
            if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and node.name[0] != "_":
                yield path, node


def test_no_public_class_has_the_name_of_another_without_a_reason() -> None:
    places: dict[str, set[str]] = {}
    for path, node in public_definitions():
        if isinstance(node, ast.ClassDef):
            places.setdefault(node.name, set()).add(name_of(path))
    shared = {name: sorted(where) for name, where in places.items() if len(where) > 1}
    assert set(shared) == set(TWO_OF_A_NAME), f"rename one, or say why in TWO_OF_A_NAME of this file: {shared}"


def test_every_public_class_and_function_says_what_it_is_for() -> None:
    silent = [f"{name_of(path)}:{node.lineno}: {node.name}" for path, node in public_definitions()
              if not ast.get_docstring(node)]  # fmt: skip
    assert not silent, "\n".join(silent)


def test_a_constant_is_explained_by_a_string_after_it_or_a_comment_beside_it() -> None:
    """Never by `#:` before it: one style, which editors and the documentation read alike."""
    found = [name_of(path) for path in MODULES if re.search(r"^\s*#:", path.read_text("utf-8"), re.MULTILINE)]
    assert not found, f"put a string after the constant in place of `#:` before it: {found}"


def last_name(node: ast.expr) -> str:
    """The name that a name or an attribute ends with; "" for any other expression."""
    return node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""


def counted_in(path: Path) -> Iterator[str]:
    """Yields names of figures in calls of `Count`, `_count...` and `charge`, in tables `COUNTED`, and returned ones."""
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.Call):
            called, at = last_name(node.func), 0
            if called == "charge":
                at = 1
            elif called not in ("Count", "_count") and not called.startswith("_count_"):
                continue
            argument = node.args[at] if len(node.args) > at else None
            if isinstance(argument, ast.Constant) and isinstance(argument.value, str):
                yield argument.value
        elif (isinstance(node, ast.FunctionDef) and node.name == "hindrance") or (
            isinstance(node, ast.Assign) and last_name(node.targets[0]) == "COUNTED"
        ):
            yield from (c.value for c in ast.walk(node) if isinstance(c, ast.Constant) and c.value in set(FigureName))


def test_everything_that_is_counted_is_in_the_registry_and_nothing_else_is() -> None:
    counted = {name for path in MODULES for name in counted_in(path)}
    assert len(counted) > 80
    assert counted - set(FigureName) == set(), "add them to bridge/contract/figures.py"
    assert set(FigureName) - counted == set(), "nobody counts these: count them by Count, or take them off figures.py"
    unended = [figure for figure in FigureName if not figure.text.endswith(".")]
    assert not unended, f"end their texts in bridge/contract/figures.py with a full stop: {unended}"


LOG_METHODS = {"info", "warning", "error", "exception", "critical", "fatal", "log"}
LOGS_BY_ITSELF = {
    "gateway/base/log_events.py": "the registry",
    "spark_ingest/opening/packed.py": "runs in executors",
    "spark_ingest/opening/rows.py": "runs in executors, which know nothing of a broker",
    "spark_ingest/source/marks.py": "runs in a query's driver",
    "spark_ingest/spool/index.py": "runs in queries",
    "spark_ingest/spool/view.py": "runs in queries",
    "spark_ingest/sinks/iceberg.py": "runs in a query's driver",
    "spark_ingest/writing/repeats.py": "runs in a query's driver",
    "spark_ingest/dashboard/page.py": "a page of the demo, which is no broker",
}
"""Modules that may log at info and above by themselves, and why."""


def logged_in(path: Path) -> Iterator[tuple[int, str]]:
    """Line and code of the calls of a logger at info and above, or of its methods handed on."""
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.Attribute) and node.attr in LOG_METHODS:
            owner = ast.unparse(node.value)
            if re.search(r"(^|[._])(log|logger|logging)$", owner) or "getLogger(" in owner:
                yield node.lineno, ast.unparse(node)


def said_in(path: Path) -> Iterator[tuple[str, int]]:
    """Names of log events, and how many arguments their text is given where it is said; -1 where only named."""
    tree = parsed(path)
    direct = {
        id(node.func.value): len(node.args) - 1
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "say"
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and last_name(node.value) == "LogEvent":
            yield node.attr, direct.get(id(node), -1)


def test_every_line_that_an_operator_may_audit_is_in_the_registry_and_is_said() -> None:
    past = [
        f"{name_of(path)}:{line}: {code}"
        for path in MODULES
        if name_of(path) not in LOGS_BY_ITSELF
        for line, code in logged_in(path)
    ]
    assert not past, "say these by an event of gateway/base/log_events.py:\n" + "\n".join(past)
    said = [each for path in MODULES for each in said_in(path)]
    known, named = {event.name for event in LogEvent}, {name for name, _ in said}
    assert not known - named, "nobody says these: say them, or take them off gateway/base/log_events.py"
    assert not named - known, "add these to gateway/base/log_events.py"
    for name, count in said:
        wanted = len(re.findall(r"%0?\d*[a-zA-Z]", LogEvent[name].text))
        assert count in (-1, wanted), f"{name} has {wanted} marks in its text, and is given {count} arguments"


@pytest.mark.parametrize(
    ("code", "found"),
    [
        ("log.info('x')", True), ("self._log.warning('x')", True), ("logging.getLogger('x').error('y')", True),
        ("say = log.exception", True), ("(log.error if a else log.warning)('x')", True), ("log.debug('x')", False),
        ("catalog.info", False), ("math.log(3)", False),
    ],
)  # fmt: skip
def test_the_test_of_log_lines_sees_what_it_is_for(tmp_path: Path, code: str, found: bool) -> None:
    path = tmp_path / "module.py"
    path.write_text(code)
    assert bool(list(logged_in(path))) is found


def test_licence_is_apache_2_everywhere() -> None:
    text = (ROOT / "LICENSE").read_text("utf-8")
    assert "Apache License" in text
    assert "Version 2.0, January 2004" in text
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    assert project["license"] == "Apache-2.0"


def test_importing_a_package_is_cheap() -> None:
    """`veilmq --help` may not wait for Spark, amqtt or the cryptography of a broker."""
    code = "import sys, gateway.cli; print(*sorted(m for m in sys.modules if '.' not in m))"
    loaded = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert not {"pyspark", "amqtt", "pyarrow", "cryptography", "psutil", "pydantic"} & set(loaded.stdout.split())


@pytest.mark.parametrize(("module", "most"), [("spark_ingest", 2), ("spark_ingest.source", 131)])
def test_a_worker_of_spark_loads_few_modules_and_no_broker(module: str, most: int) -> None:
    """Each Python worker of an executor pays for these imports; it opens rows and neither receives nor publishes."""
    code = f"import sys, {module}; print(*sys.modules)"
    run = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    loaded = run.stdout.split()
    assert not {"amqtt", "pydantic", "zeroconf", "websockets", "rich"} & set(loaded)
    assert len([name for name in loaded if name.split(".")[0] in PACKAGES]) <= most


def test_the_wheel_holds_the_four_packages_and_the_examples_in_one_of_them_only() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    wheel = project["tool"]["hatch"]["build"]["targets"]["wheel"]
    assert sorted(wheel["packages"]) == sorted(PACKAGES)
    assert wheel["force-include"] == {"configs": "gateway/configs"}
    inside = [p for folder in (*PACKAGES, "configs") for p in (ROOT / folder).rglob("*") if p.is_file()]
    odd = [name_of(p) for p in inside if p.suffix not in WHEEL_SUFFIXES and "__pycache__" not in p.parts]
    assert not odd, odd
    if importlib.util.find_spec("hatchling") is None:
        return  # the builder comes with an isolated build only; the lists above are what it is given
    from hatchling.builders.wheel import WheelBuilder

    paths = {file.distribution_path for file in WheelBuilder(str(ROOT)).recurse_included_files()}
    assert {path.split("/")[0] for path in paths} == set(PACKAGES)
    assert any(path.startswith("gateway/configs/") for path in paths)
    assert {name_of(path) for path in MODULES} <= paths


def test_time_is_slept_only_where_a_reason_is_given() -> None:
    for path in sorted((ROOT / "tests").rglob("*.py")):
        if path.relative_to(ROOT).parts[1] == "bench":
            continue
        text = path.read_text("utf-8")
        nodes = ast.walk(ast.parse(text)) if "sleep" in text else ()
        calls = [node for node in nodes if isinstance(node, ast.Call) and last_name(node.func) == "sleep"]
        slept = [one.lineno for one in calls if ast.unparse(one.func) in ("time.sleep", "asyncio.sleep")
                 and ast.unparse(one.args[0]) != "0"]  # fmt: skip
        most, _ = SLEEPS.get(name_of(path), (0, ""))
        assert len(slept) <= most, f"{name_of(path)} sleeps in lines {slept}; wait for what comes (tests/waits.py)"
    assert all((ROOT / name).exists() for name in SLEEPS)
