"""Operations of the API: path, right and input; the router and the OpenAPI document are made of this table.

anybody   the page itself, login, the document
user      every logged-in user, with the rights that the user has over MQTT
admin     users that `console.admins` names
change    admins, where `console.write` is true
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from gateway.operation.sys_topics import release

API = "/api/v1"
ANYBODY, USER, ADMIN, CHANGE = "anybody", "user", "admin", "change"
TEXT, WHOLE, TRUTH = {"type": "string"}, {"type": "integer"}, {"type": "boolean"}
TEXTS = {"type": "array", "items": TEXT}
PAGED = {"limit": WHOLE, "search": TEXT}
VERSION = {"version": WHOLE}
"""The operation changes nothing unless the users have this version, as GET /users returns it."""


@dataclass(frozen=True, slots=True)
class ApiOperation:
    """Operation of the API. `query`, `body`: JSON schema of each parameter or field; `needed`: required fields."""

    method: str
    path: str
    name: str
    who: str
    text: str
    query: Mapping[str, Any] = field(default_factory=dict)
    body: Mapping[str, Any] = field(default_factory=dict)
    needed: tuple[str, ...] = ()


OPERATIONS = (
    ApiOperation("POST", "/login", "login", ANYBODY, "Log in; answers with a cookie for the page.",
              body={"user": TEXT, "password": TEXT}, needed=("user", "password")),
    ApiOperation("GET", "/ways", "ways", ANYBODY, "How to log in: the path to an identity provider, if there is one."),
    ApiOperation("POST", "/logout", "logout", USER, "End this login."),
    ApiOperation("GET", "/me", "me", USER, "Who is logged in, and what that user may do here."),
    ApiOperation("GET", "/openapi.json", "document", ANYBODY, "This document."),
    ApiOperation("GET", "/tokens", "tokens", USER, "Tokens of this user; of all, for an admin."),
    ApiOperation("POST", "/tokens", "issue_token", USER, "A token for a program, shown once, with this user's rights.",
              body={"note": TEXT, "days": WHOLE}),
    ApiOperation("DELETE", "/tokens/{id}", "revoke_token", USER, "End a token."),
    ApiOperation("POST", "/publish", "publish", USER, "Publish a message, as this user might over MQTT.",
              body={"topic": TEXT, "payload": TEXT, "qos": WHOLE, "retain": TRUTH}, needed=("topic", "payload")),
    ApiOperation("GET", "/stream", "stream", USER, "Messages of a filter as they come, as server-sent events.",
              query={"filter": TEXT}),
    ApiOperation("GET", "/retained", "retained", USER, "Retained messages that this user may receive.",
              query={"filter": TEXT, "limit": WHOLE}),
    ApiOperation("DELETE", "/retained", "clear_retained", CHANGE, "Clear the retained message of a topic.",
              query={"topic": TEXT}),
    ApiOperation("GET", "/overview", "overview", ADMIN, "Totals, and what is wrong now."),
    ApiOperation("GET", "/day", "day", ADMIN,
              "Figures of the last day, a row a minute, and what was wrong, since when, until when."),
    ApiOperation("GET", "/overlay", "overlay", ADMIN, "Regions, links and their traffic, blame, outbox, histories."),
    ApiOperation("GET", "/clients", "clients", ADMIN, "Sessions of clients, connected or kept.", query=PAGED),
    ApiOperation("GET", "/clients/{id}", "client", ADMIN, "One session with its subscriptions."),
    ApiOperation("POST", "/clients/{id}/disconnect", "disconnect", CHANGE, "Close a client's connection."),
    ApiOperation("DELETE", "/clients/{id}", "forget", CHANGE, "End a session with all that waits for it."),
    ApiOperation("GET", "/subscriptions", "subscriptions", ADMIN, "Filters of all clients.", query=PAGED),
    ApiOperation("GET", "/entities", "entities", ADMIN, "Availability of entities.", query={"limit": WHOLE}),
    ApiOperation("GET", "/fleet", "fleet", ADMIN,
              "How traced entities stand: counts of each group, and who is away since when.",
              query={"group": TEXT, "limit": WHOLE}),
    ApiOperation("GET", "/trace", "trace", ADMIN,
              "The way of messages of a client, topic or address, as server-sent events; no payloads.",
              query={"client": TEXT, "topic": TEXT, "address": TEXT}),
    ApiOperation("GET", "/log", "log", ADMIN, "The last lines of the log."),
    ApiOperation("GET", "/metrics", "metrics", ADMIN, "Prometheus metrics."),
    ApiOperation("GET", "/users", "users", ADMIN, "Users, groups and rights, without hashes."),
    ApiOperation("PUT", "/users/{id}", "put_user", CHANGE, "Make or change a user.", query=VERSION,
              body={"password": TEXT, "groups": TEXTS, "acl": TEXTS, "enabled": TRUTH}),
    ApiOperation("DELETE", "/users/{id}", "remove_user", CHANGE, "Remove a user and send its clients away.",
              query=VERSION),
    ApiOperation("PUT", "/groups/{id}", "put_group", CHANGE, "Make or change a group.", query=VERSION,
              body={"acl": TEXTS}),
    ApiOperation("DELETE", "/groups/{id}", "remove_group", CHANGE, "Remove a group that nobody is in.", query=VERSION),
    ApiOperation("PUT", "/everybody", "put_everybody", CHANGE, "Rules that count for everybody.", query=VERSION,
              body={"acl": TEXTS}),
)  # fmt: skip


def document() -> dict[str, Any]:
    """Returns the OpenAPI 3.1 document."""
    paths: dict[str, Any] = {}
    for one in OPERATIONS:
        parameters = [
            {"name": name, "in": "query", "schema": schema, "required": False} for name, schema in one.query.items()
        ]
        if "{id}" in one.path:
            parameters.insert(0, {"name": "id", "in": "path", "schema": TEXT, "required": True})
        entry: dict[str, Any] = {
            "operationId": one.name,
            "summary": one.text,
            "description": f"For: {one.who}.",
            "parameters": parameters,
            "responses": {
                "200": {"description": "Done.", "content": {"application/json": {"schema": {"type": "object"}}}},
                "default": {"description": "An error.", "content": {"application/json": {"schema": {
                    "type": "object", "properties": {"error": TEXT}, "required": ["error"]}}}},
            },
        }  # fmt: skip
        if one.who != ANYBODY:
            entry["security"] = [{"token": []}, {"login": []}]
        if one.body:
            schema = {"type": "object", "properties": dict(one.body), "required": list(one.needed),
                      "additionalProperties": False}  # fmt: skip
            entry["requestBody"] = {"content": {"application/json": {"schema": schema}}, "required": bool(one.needed)}
        paths.setdefault(API + one.path, {})[one.method.lower()] = entry
    return {
        "openapi": "3.1.0",
        "info": {"title": "VeilMQ", "version": release(), "description": "A broker's HTTP API."},
        "paths": paths,
        "components": {
            "securitySchemes": {
                "token": {"type": "http", "scheme": "bearer"},
                "login": {"type": "apiKey", "in": "cookie", "name": "veilmq"},
            }
        },
    }


def checked(one: ApiOperation, content: object) -> dict[str, Any]:
    """Returns the checked body of this operation. Raises ValueError with a text for its sender."""
    if not isinstance(content, dict):
        raise ValueError("the body is no JSON object")
    for name in one.needed:
        if name not in content:
            raise ValueError(f"{name} is missing")
    for name, value in content.items():
        if name not in one.body:
            raise ValueError(f"{name} is unknown; known are {', '.join(one.body) or 'none'}")
        if not _fits(one.body[name], value):
            raise ValueError(f"{name} is not of type {one.body[name]['type']}")
    return content


def _fits(schema: Mapping[str, Any], value: object) -> bool:
    match schema["type"]:
        case "string":
            return isinstance(value, str)
        case "integer":
            return isinstance(value, int) and not isinstance(value, bool)
        case "boolean":
            return isinstance(value, bool)
        case _:
            return isinstance(value, list) and all(isinstance(item, str) for item in value)
