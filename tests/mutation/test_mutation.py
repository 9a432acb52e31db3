"""The runner's own business: which faults it makes, whose tests they meet, and that explanations are not stale."""

from __future__ import annotations

import ast
import os
import select
import signal
import sys
from types import ModuleType

import pytest

from tests.mutation.__main__ import ROOT, modules_of, part_of, which_tests
from tests.mutation.operators import mutations
from tests.mutation.running import end_with
from tests.mutation.survivors import EXPLAINED
from tests.mutation.swapping import UnswappableError, swap
from tests.seldom import slow

SEEN: dict[str, set[str]] = {
    "if a < b:\n    f()": {
        "if True:", "if False:", "if a <= b:", "pass",
    },
    "x = a >= 1": {"x = a > 1", "x = a < 1", "x = a >= 2"},
    "x = not a": {"x = a"},
    "x = (a) and b": {"x = (a) or b", "x = (True) and b", "x = (a) and True"},
    "x = a not in b": {"x = a in b"},
    "x = any(a)": {"x = all(a)"},
    "x = sorted(a, key=b)": set(),
    "x = zip(a, b, strict=True)": set(),
    "x = a if b else c": {"x = a if True else c", "x = a if False else c"},
    "x = [a for a in b if a]": {"x = [a for a in b if True]", "x = [a for a in b if False]"},
    "x: int = 1": {"x: int = 2"},
    "LIMIT = 4 << 20": set(),
    "PER_S, BURST = 2.0, 4.0": set(),
    'DOMAIN = "one"': {"DOMAIN = 'oneX'"},
    'def f(a: int = 1) -> str:\n    """Text."""\n    return f"{a} 1"': {"def f(a: int = 2) -> str:"},
    "def f():\n    if a:\n        raise ValueError('one')": {"if True:", "if False:"},
    "def f():\n    raise ValueError('one')": {"pass"},
    "a.b = c": {"pass"},
    "a += c": {"pass"},
    "while a:\n    break": {"while False:", "continue"},
    "class A:\n    b: bytes = field(default=b'', repr=False)": {"b: bytes = field(default=b'', repr=True)"},
    "assert a == b": set(),
}  # fmt: skip


@pytest.mark.parametrize("source", SEEN)
def test_every_small_fault_is_made_once(source: str) -> None:
    assert {one.new for one in mutations(source)} == SEEN[source]


@pytest.mark.parametrize("name", ["keys/requests.py", *slow(["keys/sharetree.py", "bridge/traces/tracer.py"])])
def test_every_fault_is_another_module_that_can_be_read(name: str) -> None:
    source = (ROOT / name).read_text("utf-8")
    found = list(mutations(source))
    assert len({one.text for one in found}) == len(found) > 50
    for one in found:
        assert one.text != source.encode()
        ast.parse(one.text)


SOURCE = b"""
LIMIT = 2
def table(size):
    return bytes(range(size))
TABLE = table(3)
def outer(a, b=1):
    return [one + b for one in a]
class Thing:
    kept = LIMIT
    def method(self):
        return outer([1])
"""


@pytest.mark.parametrize(
    ("old", "new", "seen"),
    [
        (b"one + b", b"one - b", [0]),
        (b"outer([1])", b"outer([2])", [3]),
        (b"b=1", b"b=2", None),
        (b"= LIMIT", b"= 3", None),
        (b"range(size)", b"range(2)", None),
    ],
)
def test_faults_of_functions_are_swapped_in_and_others_are_not(
    old: bytes, new: bytes, seen: list[int] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = ModuleType("faulty")
    monkeypatch.setitem(sys.modules, "faulty", module)
    exec(compile(SOURCE, "faulty", "exec", dont_inherit=True), module.__dict__)
    if seen is None:
        with pytest.raises(UnswappableError):
            swap("faulty", SOURCE, SOURCE.replace(old, new))
    else:
        swap("faulty", SOURCE, SOURCE.replace(old, new))
        assert module.Thing().method() == seen


def test_a_module_meets_its_own_tests_first() -> None:
    own, others = which_tests("keys/requests.py")
    assert own == ("tests/keys/test_requests.py",)
    assert "tests/keys/test_fetching.py" in others
    assert not set(own) & set(others)


def test_a_module_of_a_room_meets_the_tests_of_its_room_first() -> None:
    own, others = which_tests("bridge/reader/gaps.py", own_only=True)
    assert {"tests/bridge/reader/test_gaps.py", "tests/bridge/reader/test_eras.py"} <= set(own)
    assert all(name.startswith("tests/bridge/reader/") for name in own)
    assert others == ()


def test_folders_are_their_modules_and_what_is_not_there_is_said() -> None:
    assert "keys/frames.py" in modules_of(["keys"])
    assert "keys/__init__.py" not in modules_of(["keys"])
    with pytest.raises(SystemExit, match=r"there is no keys/nothing\.py"):
        modules_of(["keys/nothing.py"])


def test_parts() -> None:
    assert part_of("2/5") == (2, 5)
    for text in ("0/5", "6/5", "2", "a/b", "/"):
        with pytest.raises(Exception, match="NUMBER/OF"):
            part_of(text)


def test_no_explanation_is_of_a_fault_that_cannot_be_made_any_more() -> None:
    made = {
        (module, one.old, one.new)
        for module in {module for module, _, _ in EXPLAINED}
        for one in mutations((ROOT / module).read_text("utf-8"))
    }
    assert set(EXPLAINED) <= made


def test_what_works_for_a_process_ends_with_it() -> None:
    seen, said = os.pipe()
    parent = os.fork()
    if parent == 0:
        try:
            if os.fork():
                os.close(said)
            else:
                end_with(os.getppid())
                os.write(said, b"!")
            while True:
                signal.pause()
        finally:
            os._exit(0)
    os.close(said)
    assert os.read(seen, 1) == b"!"
    os.kill(parent, signal.SIGKILL)
    os.waitpid(parent, 0)
    assert select.select([seen], [], [], 30)[0], "it still runs"
    assert os.read(seen, 1) == b""
    os.close(seen)
