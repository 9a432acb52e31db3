"""`make audit`: known weaknesses of the libraries that an installation has. python -m tests.audit

pip-audit asks the package registry for advisories on every library of this environment. A registry that gives none, as
mirrors do, leaves a library unaudited, and pip-audit ends well all the same. So one library is asked about first; if
that one has no advisories, nor have others, and this is said. The exit status is 1 for a weakness that is not in
`ALLOWED`.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from typing import Any

ALLOWED: Mapping[str, str] = {}
"""Advisories that do not concern VeilMQ, each with the reason."""
PROBE = "cryptography"
WITHIN_S = 300.0


def judged(report: Mapping[str, Any], allowed: Mapping[str, str] = ALLOWED) -> tuple[list[str], int]:
    """Returns lines that say what a report of pip-audit found, and the exit status."""
    libraries = report["dependencies"]
    unaudited = [each["name"] for each in libraries if "skip_reason" in each]
    audited = len(libraries) - len(unaudited)
    lines, status = [f"{audited} of {len(libraries)} libraries audited"], 0
    for each in libraries:
        for weakness in each.get("vulns", ()):
            names = {weakness["id"], *weakness.get("aliases", ())}
            reason = next((allowed[name] for name in sorted(names) if name in allowed), None)
            said = reason or f"mended in {', '.join(weakness['fix_versions']) or 'no version yet'}"
            lines.append(f"{each['name']} {each['version']}: {weakness['id']}: {said}")
            status |= reason is None
    if unaudited:
        lines.append(f"not audited, the registry gives no advisories on them: {len(unaudited)}, such as {unaudited[0]}")
    return lines, int(status)


def probed() -> dict[str, Any] | None:
    """Returns the report on one library that is installed here."""
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as file:
        file.write(f"{PROBE}=={version(PROBE)}\n")
        file.flush()
        return asked(("--requirement", file.name, "--no-deps", "--disable-pip"))


def asked(arguments: Sequence[str] = ()) -> dict[str, Any] | None:
    """Returns the report of pip-audit, by default on this environment; None if the registry did not answer."""
    command = [sys.executable, "-m", "pip_audit", "--progress-spinner", "off", "--format", "json", *arguments]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=WITHIN_S)
        return dict(json.loads(done.stdout))
    except (subprocess.TimeoutExpired, ValueError):
        return None


def main() -> int:
    probe = probed()
    if probe is None or judged(probe)[0][0].startswith("0 "):
        print(f"nothing audited: the registry gives no advisories, not on {PROBE} either")
        return 0
    report = asked()
    if report is None:
        print("nothing audited: the registry does not answer any more")
        return 0
    lines, status = judged(report)
    print("\n".join(lines))
    return status


if __name__ == "__main__":
    sys.exit(main())
