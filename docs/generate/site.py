"""MkDocs hook: the reference pages that are made from the code at every build, so that they cannot drift from it.

Each page is a function without arguments that returns Markdown. A new one: write the function, list it in `PAGES`, and
name its path in the navigation of `mkdocs.yml`. Generated pages are in no commit.
"""

from __future__ import annotations

from collections.abc import Callable

from bounds import filled
from commands import commands_page
from configuration import configuration_page
from conformance import conformance_page
from conventions import conventions_page
from device_rules import device_rules_page
from holders import PLACE, rows
from http_api import http_api_page
from invariants import with_tests
from lifecycles import lifecycles_page
from log_events import log_page
from metrics import metrics_page
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page
from troubleshooting import troubleshooting_page
from waits import waits_page

PAGES: dict[str, Callable[[], str]] = {
    "reference/configuration.md": configuration_page,
    "reference/commands.md": commands_page,
    "reference/http-api.md": http_api_page,
    "reference/metrics.md": metrics_page,
    "reference/log.md": log_page,
    "reference/troubleshooting.md": troubleshooting_page,
    "reference/waits.md": waits_page,
    "reference/states.md": lifecycles_page,
    "reference/conformance.md": conformance_page,
    "reference/conventions.md": conventions_page,
    "reference/device-rules.md": device_rules_page,
}


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """MkDocs asks for the files of the site."""
    for path, page in PAGES.items():
        files.append(File.generated(config, path, content=page()))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """MkDocs asks for the Markdown of a page."""
    if page.file.src_uri == "explanation/invariants.md":
        return with_tests(markdown)
    return filled(markdown).replace(PLACE, rows()) if page.file.src_uri == "reference/bounds.md" else markdown
