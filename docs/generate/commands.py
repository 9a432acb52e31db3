"""Every command of `veilmq` with its arguments and options, from typer."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from typing import Any

import typer

INTRODUCTION = """# Commands

Made from the program itself when this site is built: `veilmq COMMAND --help` says the same.

Every command ends with status 0 when it did its work. What an operator can get wrong is one line on standard error,
`veilmq: cause; cure`, and status 2. Ctrl-C ends with status 130. `--json` prints what a program can read.
"""


def commands_page() -> str:
    """Markdown."""
    from gateway.cli import app  # noqa: PLC0415 - reads entry points

    return "\n".join([INTRODUCTION, *_group(typer.main.get_command(app), "veilmq")])


def _group(command: Any, name: str) -> Iterator[str]:
    for sub_name, sub in sorted(command.commands.items()):
        if getattr(sub, "hidden", False):
            continue
        if hasattr(sub, "commands"):
            yield f"## {name} {sub_name}\n"
            yield _prose(sub.help)
            yield from _group(sub, f"{name} {sub_name}")
        else:
            level = "###" if " " in name else "##"
            yield f"{level} {name} {sub_name}\n"
            yield _prose(sub.help)
            yield from _parameters(sub, f"{name} {sub_name}")


def _parameters(command: Any, name: str) -> Iterator[str]:
    context = command.make_context(name, [], resilient_parsing=True)
    yield f"    {name} {' '.join(command.collect_usage_pieces(context))}\n"
    records = [each.get_help_record(context) for each in command.params if not getattr(each, "hidden", False)]
    rows = [record for record in records if record]
    if rows:
        yield "| argument or option | meaning | default |"
        yield "|---|---|---|"
    for names, text in rows:
        said, default = _split(text)
        yield f"| `{_clean(names)}` | {_cell(said)} | {default} |"
    yield ""


def _split(text: str) -> tuple[str, str]:
    """Meaning and default of `... [default: x]`, `... [required]`."""
    found = re.search(r"\s*\[(?P<extra>[^\[\]]*(?:default|required)[^\[\]]*)\]\s*$", text)
    if found is None:
        return text, ""
    extra = found["extra"]
    default = re.search(r"default: ([^;]*)", extra)
    said = text[: found.start()]
    return said, "needed" if "required" in extra else f"`{default[1]}`" if default else ""


def _clean(names: str) -> str:
    return re.sub(r"\s+", " ", names).strip()


def _prose(text: str | None) -> str:
    """Help as Markdown: paragraphs stay, indented lines stay code."""
    return inspect.cleandoc(text or "").replace("\b", "").replace("<", "&lt;") + "\n"


def _cell(text: str | None) -> str:
    return re.sub(r"\s+", " ", text or "").strip().replace("|", "\\|").replace("<", "&lt;")
