"""The table of device conventions, from `tests/conformance/conventions.py`: each statement and its test."""

from __future__ import annotations

from tests.conformance.conventions import CONVENTIONS

INTRODUCTION = """# Conventions of devices

What Sparkplug B 3.0, Home Assistant and Homie ask of whoever reads their devices or shows them devices, as far as it
is about who is there, in our own words. Each statement names its test; the last lines of each table say what is not
done. A test makes sure that every test named here exists.
"""


def conventions_page() -> str:
    """Markdown."""
    lines = [INTRODUCTION]
    for name, (source, statements) in CONVENTIONS.items():
        lines += [f"## {name}\n", f"Source: {source}.\n", "| where | statement | test |", "|---|---|---|"]
        lines += [
            f"| {each.where} | {each.text} | {f'`{each.test}`' if each.test else 'not done'} |" for each in statements
        ]
        lines.append("")
    return "\n".join(lines)
