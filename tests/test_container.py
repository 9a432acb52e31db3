"""The image of the container file, built as the page says, on a base image made of this system's own packages.

The official base image comes from a registry that is not reached from everywhere. What stands for it here has the
files of the essential packages and of Python. Steps run by `chroot`, since few test machines may make containers.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.ports import free_ports
from tests.waits import wait_until

ROOT = Path(__file__).parents[1]
USER = 10001
LINKS = ("/bin", "/sbin", "/lib", "/lib64")
BESIDE = ("/etc/ld.so.cache", "/etc/passwd", "/etc/group", "/etc/shadow", "/etc/gshadow", "/etc/ssl", "/etc/xdg/pip")
"""Files that belong to no package, or that `pip` needs to reach its index as it does here."""
pytestmark = [
    pytest.mark.tools,
    pytest.mark.slow,
    pytest.mark.timeout(1200),
    pytest.mark.skipif(os.geteuid() != 0 or shutil.which("buildah") is None, reason="needs root and buildah"),
]


def said(*command: str, env: dict[str, str] | None = None, cwd: Path | None = None) -> str:
    """Returns what a command prints. Raises CalledProcessError, with what it said in the notes."""
    try:
        done = subprocess.run(command, check=True, capture_output=True, text=True, env=env, cwd=cwd)
    except subprocess.CalledProcessError as error:
        error.add_note(str(error.stderr)[-2000:])
        raise
    return done.stdout.strip()


def packages() -> set[str]:
    """Returns the names of the essential packages, of Python's, and of all that they need."""
    listed = said("dpkg-query", "--show", "--showformat=${Essential} ${Package}\\n").splitlines()
    wanted = [line.split()[1] for line in listed if line.startswith("yes")] + ["python3-venv", "passwd"]
    less = [f"--no-{kind}" for kind in ("recommends", "suggests", "conflicts", "breaks", "replaces", "enhances")]
    tree = said("apt-cache", "depends", "--recurse", "--installed", *less, *wanted)
    return {line.split(":")[0] for line in tree.splitlines() if not line.startswith((" ", "<"))}


def files() -> Iterator[str]:
    """Yields the files and folders of the base image, each at its real place."""
    yield from LINKS
    yield from BESIDE
    for package in packages():
        done = subprocess.run(["dpkg", "--listfiles", package], capture_output=True, text=True, check=False)
        for name in done.stdout.splitlines():
            if name != "/." and not name.startswith(("/usr/share/doc", "/usr/share/man", "/usr/share/locale")):
                folder, last = os.path.split(name)
                yield f"{os.path.realpath(folder)}/{last}"


class Builder:
    """Buildah with a storage of its own."""

    def __init__(self, directory: Path) -> None:
        self._storage = [f"--root={directory / 'storage'}", f"--runroot={directory / 'run'}", "--storage-driver=vfs"]

        self._environment = {**os.environ, "BUILDAH_ISOLATION": "chroot"}

    def __call__(self, *words: str) -> str:
        return said("buildah", *self._storage, *words, env=self._environment, cwd=ROOT)

    @contextmanager
    def running(self, *words: str) -> Iterator[None]:
        """A command that runs meanwhile."""
        command = ["buildah", *self._storage, *words]
        process = subprocess.Popen(command, env=self._environment, start_new_session=True)
        try:
            yield
        finally:
            os.killpg(process.pid, signal.SIGTERM)
            process.wait(60)


def test_the_image_is_built_and_serves_as_nobody_special(tmp_path: Path) -> None:
    buildah = Builder(tmp_path)
    base = re.findall(r"^FROM (\S+)", (ROOT / "Containerfile").read_text("utf-8"), re.MULTILINE)[0]
    archive = tmp_path / "base.tar"
    with tarfile.open(archive, "w") as out:
        for name in dict.fromkeys(files()):
            if os.path.lexists(name):
                out.add(name, recursive=name in BESIDE)
        link = tarfile.TarInfo("usr/bin/python")
        link.type, link.linkname = tarfile.SYMTYPE, "python3"
        out.addfile(link)
    working = buildah("from", "scratch")
    buildah("add", working, str(archive), "/")
    buildah("commit", working, base)
    buildah("build", "--format", "docker", "--pull-never", "-t", "localhost/veilmq", ".")

    (port,) = free_ports(1)
    said(sys.executable, "-m", "gateway.cli", "init", str(tmp_path / "site"), "--port", str(port), cwd=ROOT)
    made = buildah("from", "localhost/veilmq")
    member = Path(buildah("mount", made)) / "etc" / "veilmq"
    shutil.copytree(tmp_path / "site" / "g1", member, dirs_exist_ok=True)
    for path in [member, *member.rglob("*")]:
        os.chown(path, USER, USER)
    assert buildah("run", made, "--", "id", "-u") == str(USER)
    image = json.loads(buildah("inspect", "--type=image", "localhost/veilmq"))["Docker"]["config"]
    assert image["Entrypoint"][:2] == ["veilmq", "broker"]
    with buildah.running("run", made, "--", *image["Entrypoint"]):
        publish = [sys.executable, "-m", "gateway.cli", "pub", "-p", str(port), "here/a", "1"]
        assert wait_until(lambda: subprocess.run(publish, cwd=ROOT, check=False).returncode == 0, 90, every_s=1.0)
        healthy = ["run", made, "--", *image["Healthcheck"]["Test"][1:]]
        with pytest.raises(subprocess.CalledProcessError):
            buildah(*healthy)  # a gateway without its replicas is broken
