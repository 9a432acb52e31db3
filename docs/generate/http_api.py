"""Every operation of a broker's HTTP API, from the table that router and OpenAPI document are made of."""

from __future__ import annotations

from collections.abc import Iterator

from gateway.console.operations import ADMIN, ANYBODY, API, CHANGE, OPERATIONS, USER

INTRODUCTION = f"""# HTTP API

Made from the table that the router is made of, when this site is built. `{API}/openapi.json` of a running broker is the
same as an OpenAPI document. [How to switch it on](../how-to/operate.md#page-and-http-api).

A program shows a token: `Authorization: Bearer TOKEN`. Bodies and answers are JSON. An error is an HTTP status and
`{{"error": "…"}}`.
"""
WHO = {
    ANYBODY: "For anybody",
    USER: "For whoever is logged in, with the rights that the user has over MQTT",
    ADMIN: "For users that `console.admins` names",
    CHANGE: "For these, where `console.write` is true",
}


def http_api_page() -> str:
    """Markdown."""
    return "\n".join([INTRODUCTION, *_tables()])


def _tables() -> Iterator[str]:
    for who, title in WHO.items():
        yield f"## {title}\n"
        yield "| operation | what it does | query | body |"
        yield "|---|---|---|---|"
        for one in OPERATIONS:
            if one.who == who:
                query = ", ".join(f"`{name}`" for name in one.query)
                body = ", ".join(f"`{name}`" + ("" if name in one.needed else "?") for name in one.body)
                yield f"| `{one.method} {API}{one.path}` | {one.text} | {query} | {body} |"
        yield ""
    yield "Fields with a question mark may be left out."
