"""`make deb`: a Debian package of the wheel with all its libraries, unpacked and asked before it is kept.

    python -m tests.debian dist/veilmq-*.whl

Writes `veilmq_VERSION_ARCHITECTURE.deb` beside the wheel: an environment of the system's Python in `/opt/veilmq`, the
command, the units of `configs/systemd`, the user and the manual page. The system's Python has to be of the minor
version for which the libraries were fetched; the package depends on it. Nothing is started or enabled.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PYTHON = "/usr/bin/python3"
HOME = "opt/veilmq"
CONTROL = """\
Package: veilmq
Version: {version}
Architecture: {architecture}
Maintainer: VeilMQ <root@localhost>
Depends: python3 (>= {minor}), python3 (<< {next_minor}), systemd | systemd-standalone-sysusers
Section: net
Priority: optional
Description: MQTT gateway and edge broker whose brokers cannot read what they carry
 Brings its Python libraries in /opt/veilmq. Members are units veilmq@NAME.
"""
ENDS = "if [ -d /run/systemd/system ]; then"
SCRIPTS = {
    # Byte code is made once, here: members may not write it, and each would compile all modules at each start.
    "postinst": f"""systemd-sysusers veilmq.conf
/{HOME}/bin/python -m compileall -q /{HOME}/lib >/dev/null
{ENDS} systemctl daemon-reload; fi
""",
    "prerm": f"""if [ "$1" = remove ] && [ -d /run/systemd/system ]; then
  systemctl stop 'veilmq@*.service' 'veilmq-renew@*.timer' veilmq-renew.timer
fi
find /{HOME} -name __pycache__ -prune -exec rm -r {{}} +
""",
    "postrm": f"{ENDS} systemctl daemon-reload; fi\n",
}
"""Scripts of the package. Removal ends running members, and leaves users, keys and data where they are."""


def said(*command: str | Path) -> str:
    """Returns what a command prints. Raises CalledProcessError."""
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def environment(tree: Path, wheel: Path) -> None:
    """Installs the wheel into `/opt/veilmq` below `tree`, with the paths that it has on the target."""
    place = tree / HOME
    said(PYTHON, "-m", "venv", place)
    said(place / "bin" / "python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check", wheel.resolve())
    said(place / "bin" / "python", "-m", "pip", "uninstall", "--quiet", "--yes", "pip", "setuptools")
    for path in place.rglob("__pycache__"):
        shutil.rmtree(path)
    for path in [*(place / "bin").iterdir(), place / "pyvenv.cfg"]:
        if path.is_file() and not path.is_symlink():
            path.write_text(path.read_text("utf-8").replace(str(place), f"/{HOME}"), "utf-8")


def furnish(tree: Path, manual: str) -> None:
    """Puts command, units, user, manual page and the folder of members below `tree`."""
    units, page = tree / "lib" / "systemd" / "system", tree / "usr" / "share" / "man" / "man1" / "veilmq.1"
    for folder in (units, tree / "usr" / "bin", tree / "usr" / "lib" / "sysusers.d", page.parent, tree / "etc/veilmq"):
        folder.mkdir(parents=True)
    for unit in (ROOT / "configs" / "systemd").iterdir():
        is_unit = unit.suffix in (".service", ".timer")
        shutil.copyfile(unit, units / unit.name if is_unit else tree / "usr" / "lib" / "sysusers.d" / "veilmq.conf")
    (tree / "usr" / "bin" / "veilmq").symlink_to(f"/{HOME}/bin/veilmq")
    page.write_text(manual, "utf-8")


def build(wheel: Path) -> Path:
    """Returns the package of a wheel. Raises CalledProcessError."""
    version, architecture = wheel.name.split("-")[1], said("dpkg", "--print-architecture")
    major, minor = map(int, said(PYTHON, "-c", "import sys; print(*sys.version_info[:2])").split())
    package = wheel.with_name(f"veilmq_{version}_{architecture}.deb")
    with tempfile.TemporaryDirectory() as directory:
        tree = Path(directory) / "tree"
        environment(tree, wheel)
        furnish(tree, said(sys.executable, "-m", "gateway.cli", "man"))
        (tree / "DEBIAN").mkdir()
        (tree / "DEBIAN" / "control").write_text(
            CONTROL.format(
                version=version, architecture=architecture, minor=f"{major}.{minor}", next_minor=f"{major}.{minor + 1}~"
            )
        )
        for name, script in SCRIPTS.items():
            (tree / "DEBIAN" / name).write_text(f"#!/bin/sh\nset -e\n{script}")
            (tree / "DEBIAN" / name).chmod(0o755)
        tree.chmod(0o755)
        said("dpkg-deb", "--root-owner-group", "-Zgzip", "--build", tree, package)
    return package


def asked(package: Path) -> str:
    """Returns the version that the unpacked command says at its place, in a mount namespace of its own (root)."""
    with tempfile.TemporaryDirectory() as directory:
        said("dpkg-deb", "--extract", package, directory)
        look = f"mount --bind {directory}/opt /opt && exec {directory}/usr/bin/veilmq --version"
        return said("unshare", "--mount", "sh", "-c", look)


def main(wheel: Path) -> int:
    package = build(wheel)
    print(f"{package.name}: {asked(package)}")
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
