"""Units, container file and manual page: as far as this machine can tell that they are right."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests import debian
from tests.gateway.overlay_processes import run_veilmq

ROOT = Path(__file__).parent.parent
UNITS = sorted(p for p in (ROOT / "configs" / "systemd").iterdir() if p.suffix in (".service", ".timer"))


@pytest.mark.parametrize("unit", UNITS, ids=lambda path: path.name)
def test_units_are_what_systemd_reads(unit: Path, tmp_path: Path) -> None:
    if shutil.which("systemd-analyze") is None:
        pytest.skip("no systemd here")
    text = unit.read_text("utf-8").replace("/opt/veilmq/bin/veilmq", sys.executable)  # it need not be installed here
    (tmp_path / unit.name.replace("@", "@r1")).write_text(text)
    for other in UNITS:
        if other != unit:
            (tmp_path / other.name).write_text(
                other.read_text("utf-8").replace("/opt/veilmq/bin/veilmq", sys.executable)
            )
    path = tmp_path / unit.name.replace("@", "@r1")
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", str(path)], capture_output=True, text=True, check=False
    )
    ours = [line for line in done.stderr.splitlines() if "veilmq" in line]
    assert not [line for line in ours if re.search(r"Unknown|Invalid|Failed to parse|not executable|Missing", line)], (
        ours
    )


def test_systemd_makes_the_users_of_the_units(tmp_path: Path) -> None:
    if shutil.which("systemd-sysusers") is None:
        pytest.skip("no systemd here")
    (tmp_path / "etc").mkdir()
    users = ROOT / "configs" / "systemd" / "veilmq.sysusers"
    made = subprocess.run(
        ["systemd-sysusers", f"--root={tmp_path}", str(users)], capture_output=True, text=True, check=False
    )
    assert made.returncode == 0, made.stderr
    names = {line.split(":")[0] for line in (tmp_path / "etc" / "passwd").read_text().splitlines()}
    assert names >= {
        match for unit in UNITS for match in re.findall(r"^User=(.*)$", unit.read_text("utf-8"), re.MULTILINE)
    }


@pytest.mark.parametrize("unit", [unit for unit in UNITS if unit.suffix == ".service"], ids=lambda path: path.name)
def test_systemd_finds_little_that_a_unit_could_do(unit: Path) -> None:
    if shutil.which("systemd-analyze") is None:
        pytest.skip("no systemd here")
    command = ["systemd-analyze", "security", "--no-pager", "--offline=true", "--threshold=40", str(unit)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-200:] + done.stderr


def test_the_unit_gives_little_away() -> None:
    text = (ROOT / "configs" / "systemd" / "veilmq@.service").read_text("utf-8")
    for line in ("NoNewPrivileges=yes", "ProtectSystem=strict", "CapabilityBoundingSet=", "UMask=0077", "User=veilmq"):
        assert f"{line}\n" in text
    assert "RestartPreventExitStatus=2" in text
    assert "ExecStartPre" not in text, "systemd starts again after its exit status, whichever it is"


def test_the_debian_package_brings_what_the_units_start(tmp_path: Path) -> None:
    debian.furnish(tmp_path, "manual")
    units = tmp_path / "lib" / "systemd" / "system"
    assert sorted(path.name for path in units.iterdir()) == [path.name for path in UNITS]
    command = str((tmp_path / "usr" / "bin" / "veilmq").readlink())
    assert f"ExecStart={command} broker" in (units / "veilmq@.service").read_text("utf-8")
    assert "u veilmq " in (tmp_path / "usr" / "lib" / "sysusers.d" / "veilmq.conf").read_text("utf-8")


def test_the_container_runs_as_nobody_special_and_says_how_it_is() -> None:
    lines = [line for line in (ROOT / "Containerfile").read_text("utf-8").splitlines() if line and line[0] != "#"]
    words = {
        "FROM",
        "COPY",
        "RUN",
        "USER",
        "WORKDIR",
        "ENV",
        "VOLUME",
        "EXPOSE",
        "STOPSIGNAL",
        "HEALTHCHECK",
        "ENTRYPOINT",
    }
    continued = False
    for line in lines:
        assert continued or line.split()[0] in words, line
        continued = line.endswith("\\")
    assert not continued
    user = next(line for line in lines if line.startswith("USER"))
    assert int(user.split()[1].split(":")[0]) >= 1000
    assert any(line.startswith("HEALTHCHECK") for line in lines)
    assert lines.index(user) < lines.index(next(line for line in lines if line.startswith("ENTRYPOINT")))


def test_the_manual_page_is_read_without_complaint() -> None:
    page = run_veilmq("man").stdout
    for command in ("init", "up", "join", "status", "passwd", "import", "overlay attach", "users add", "backup"):
        assert f".B veilmq {command} " in page, command
    if shutil.which("man") is not None and shutil.which("groff") is not None:
        shown = subprocess.run(
            ["groff", "-man", "-Tutf8", "-ww"], input=page, capture_output=True, text=True, check=True
        )
        assert "warning" not in shown.stderr


@pytest.mark.parametrize("name", ["keys", "bridge", "gateway"])
@pytest.mark.parametrize("form", ["{}.py", "{}/__init__.py"])
def test_a_file_that_hides_a_package_of_ours_is_named_with_the_cure(tmp_path: Path, name: str, form: str) -> None:
    hiding = tmp_path / form.format(name)
    hiding.parent.mkdir(exist_ok=True)
    hiding.write_text("VALUE = 1\n")
    script = tmp_path / "rows.py"
    script.write_text("from spark_ingest.options import parse_options\n")
    done = subprocess.run([sys.executable, str(script)], cwd=tmp_path, capture_output=True, text=True, check=False)
    said = done.stderr.splitlines()[-1]
    assert (
        said == f"ImportError: {hiding} hides VeilMQ's package `{name}`: rename it, or start Python in another folder"
    )


def test_an_empty_folder_of_that_name_hides_nothing(tmp_path: Path) -> None:
    (tmp_path / "gateway").mkdir()
    code = "import sys; sys.path.insert(0, '.'); from spark_ingest import options"
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, check=True)


def test_the_page_and_the_units_name_one_place_for_the_program() -> None:
    page = (ROOT / "docs" / "how-to" / "install.md").read_text("utf-8")
    for unit in UNITS:
        for command in re.findall(r"^ExecStart=(\S*veilmq)", unit.read_text("utf-8"), re.MULTILINE):
            assert command == "/opt/veilmq/bin/veilmq"
    assert "python3 -m venv /opt/veilmq" in page
    for name in re.findall(r"configs/systemd/[\w@.-]+", page):
        assert (ROOT / name).is_file(), name
    operate = (ROOT / "docs" / "how-to" / "operate.md").read_text("utf-8")
    assert "[Service]" not in operate, "the unit stands in configs/systemd alone"


def test_compose_runs_what_init_makes(tmp_path: Path) -> None:
    """Names, ports and mounts of the five containers are those of the `veilmq init` in the head of the file."""
    text = (ROOT / "configs" / "containers" / "compose.yaml").read_text("utf-8")
    page = (ROOT / "docs" / "how-to" / "install.md").read_text("utf-8")
    command = next(line for line in text.splitlines() if line.startswith("#   veilmq init"))[4:]
    assert f"    {command}" in page.splitlines()
    services = yaml.safe_load(text)["services"]
    assert run_veilmq(*command.split()[1:], cwd=tmp_path).returncode == 0
    members = {path.parent.name: yaml.safe_load(path.read_text()) for path in tmp_path.glob("site/*/broker.yaml")}
    assert services.keys() == members.keys()
    for name, service in services.items():
        (bind,) = [listener["bind"] for listener in members[name]["listeners"].values()]
        assert service["volumes"] == [f"${{SITE}}/{name}:/etc/veilmq", f"{name}:/var/lib/veilmq"]
        assert all(port.rpartition(":")[2] == bind.rpartition(":")[2] for port in service.get("ports", ()))
        assert not any("owner" in volume for volume in service["volumes"])


def test_no_identity_of_a_folder_beside_gets_into_an_image() -> None:
    lines = [line for line in (ROOT / ".dockerignore").read_text("utf-8").splitlines() if line and line[0] != "#"]
    assert lines[0] == "*"
    allowed = {line[1:] for line in lines if line.startswith("!")}
    beside = {"configs", "sbom", "pyproject.toml", "README.md", "LICENSE"}
    assert allowed == {"keys", "bridge", "gateway", "papers", "spark_ingest"} | beside


def test_make_demo_says_at_once_what_it_does_and_takes_no_tools_of_tests() -> None:
    """A copy of the Makefile in a folder without an environment: what make would run, before anything is installed."""
    if shutil.which("make") is None:
        pytest.skip("no make here")
    told = subprocess.run(
        ["make", "--no-print-directory", "--dry-run", "VENV=none/here", "demo"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    first = [line for line in told.splitlines() if not line.startswith(" ")]
    assert first[1].startswith("echo "), first
    assert "--quiet" not in told
    assert "[spark]'" in told
    assert "dev" not in told.replace("/dev/", "")
