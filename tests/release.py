"""`make release`: what a release is attested by. python -m tests.release dist/veilmq-*.whl

Builds the wheel a second time, from the committed files in a folder elsewhere, and compares both builds byte by byte.
Installs the wheel without extras into a clean environment and lists that environment as a CycloneDX document beside
the wheel. Prints the SHA-256 of each file. The exit status is 1 if the builds differ.
"""

from __future__ import annotations

import hashlib
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PIP = ("-m", "pip", "--quiet", "--disable-pip-version-check")


def build(into: Path) -> Path:
    """Returns a wheel that is built from the files of the last commit, in a folder of its own."""
    source = into / "source"
    source.mkdir(parents=True)
    archive = subprocess.run(["git", "archive", "HEAD"], cwd=ROOT, check=True, capture_output=True)
    subprocess.run(["tar", "-x", "-C", source], input=archive.stdout, check=True)
    subprocess.run([sys.executable, *PIP, "wheel", "--no-deps", "--wheel-dir", into, source], check=True)
    (wheel,) = into.glob("*.whl")
    return wheel


def bill_of_materials(wheel: Path, out: Path) -> None:
    """Writes a CycloneDX document of the wheel and of each library that it brings."""
    with tempfile.TemporaryDirectory() as directory:
        venv.create(directory, with_pip=True)
        python = Path(directory) / "bin" / "python"
        subprocess.run([python, *PIP, "install", wheel.resolve()], check=True)
        subprocess.run([python, *PIP, "uninstall", "--yes", "pip", "setuptools"], check=True)
        listed = ["cyclonedx_py", "environment", "--output-reproducible", "--output-file", out, python]
        subprocess.run([sys.executable, "-m", *listed], check=True)


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def main(wheel: Path) -> int:
    with tempfile.TemporaryDirectory() as directory:
        again = digest(build(Path(directory)))
    if again != digest(wheel):
        print(f"{wheel.name}: the second build differs; commit all files, and look for a time or a path in one")
        return 1
    listed = wheel.with_suffix(".cdx.json")
    bill_of_materials(wheel, listed)
    for path in (wheel, listed):
        print(f"{digest(path)}  {path.name}")
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
