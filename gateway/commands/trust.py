"""`veilmq trust` and `veilmq overlay`: trust domains, identities, rights, keys and the signed overlay.

Commands for the owner and for operators of members; each calls a single function and prints the next step.
"""

# ruff: noqa: PLC0415  heavy imports happen inside the commands, so that --help and completion answer at once

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gateway.commands.printing import Json, as_text, print_json, print_table

if TYPE_CHECKING:
    from gateway.owner import Signed, SignOptions
    from keys.grants import Right

OPTIONS: dict[str, Any] = {
    "no_args_is_help": True,
    "pretty_exceptions_enable": False,
    "context_settings": {"help_option_names": ["-h", "--help"]},
}
trust_app = typer.Typer(help="Trust domains, identities, rights and keys.", **OPTIONS)
overlay_app = typer.Typer(help="Who is in, and how it is joined.", **OPTIONS)

Verbose = Annotated[bool, typer.Option("-v", "--verbose", help="Log more: the same as --log-level debug.")]
LogLevel = Annotated[
    str | None, typer.Option("--log-level", metavar="LEVEL", help="debug, info, warning or error; before the file's.")
]
Description = Annotated[Path, typer.Argument(metavar="OVERLAY.yaml")]
OverlayFile = Annotated[Path, typer.Argument(metavar="OVERLAY.json", help="The signed overlay; it is replaced.")]
Owner = Annotated[Path, typer.Option(metavar="DIR", help="Trust domain that owns the overlay.")]
Out = Annotated[Path, typer.Option(help="Signed file to write.")]
Member = Annotated[str, typer.Option(metavar="NAME", help="Gateway or ingest job.")]
Publish = Annotated[list[str] | None, typer.Option(metavar="FILTER", help="Clear names; may be repeated.")]
Read = Annotated[list[str] | None, typer.Option(metavar="FILTER", help="Clear names, whole scopes; may be repeated.")]
TokenKey = Annotated[
    str, typer.Option("--key", metavar="URI", help="pkcs11:... of the member's key, if it is in a token.")
]
Cards = Annotated[list[Path] | None, typer.Option("--card", metavar="FILE", help="Newer card of a member.")]
Lost = Annotated[
    list[str] | None, typer.Option("--replace-lost", metavar="NAME", help="Its key is lost: take a new one.")
]


@trust_app.command("init")
def trust_init(
    directory: Annotated[Path, typer.Argument(metavar="DIR")],
    domain: Annotated[str, typer.Option(help="Name of the trust domain, e.g. of your organisation.")],
    owner_key: Annotated[
        str, typer.Option("--owner-key", metavar="URI", help="pkcs11:... of the owner's key, if it is in a token.")
    ] = "",
    ca_key: Annotated[
        str, typer.Option("--ca-key", metavar="URI", help="pkcs11:... of the authority's key, if it is in a token.")
    ] = "",
) -> None:
    """Make a trust domain: its certificate authority and the owner and root keys, used if it owns an overlay."""
    from gateway.trust.domains import TrustDomain

    TrustDomain.create(directory, domain, time.time(), owner_key, ca_key)
    print(f"trust domain {domain} in {directory}; back it up, and show ca.key, owner.key and root.key to nobody")


@trust_app.command("issue")
def trust_issue(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="Trust domain that issues.")],
    name: Annotated[str, typer.Option(help="Name in the overlay, unique there; an entity's is its client id.")],
    role: Annotated[
        str, typer.Option(help="replica, gateway, ingest, keyserver, entity; listener, client: TLS of devices.")
    ],
    out: Annotated[Path, typer.Option(help="Identity directory to make.")],
    host: Annotated[list[str] | None, typer.Option(help="Host name or IP address; may be repeated.")] = None,
    node: Annotated[
        list[Path] | None, typer.Option(metavar="FILE", help="For an entity: card.json of a gateway that traces.")
    ] = None,
    key: TokenKey = "",
) -> None:
    """Make an identity: key, TLS certificate, and the card for the overlay's owner. An entity has no card, nor have
    listeners and clients, whose keys are of the kind that devices know.
    """
    from gateway.trust.device_certificates import USAGES, issue
    from gateway.trust.domains import ISSUABLE, TrustDomain
    from gateway.trust.errors import TrustError
    from keys.identity import Role

    if key and role not in set(ISSUABLE):
        raise TrustError(f"the key of a {role} cannot be in a token; leave --key out")
    if role == Role.ENTITY:
        _issue_entity(directory, name, out, host or [], node or [])
        return
    if role in USAGES:
        path = issue(TrustDomain.load(directory), name, role, host or (), out, time.time())
        print(f"{path} and {out / 'key.pem'}; who connects or listens to it trusts {out / 'ca.pem'}")
        return
    if role not in set(ISSUABLE):
        raise TrustError(f"role {role} does not exist; take one of {', '.join((*ISSUABLE, Role.ENTITY, *USAGES))}")
    if node:
        raise TrustError(f"a {role} asks no discovery node; leave --node out")
    TrustDomain.load(directory).issue(name, Role(role), tuple(host or ("127.0.0.1",)), out, time.time(), key=key)
    print(f"identity {name} in {out}; give {out / 'card.json'} to the owner of the overlay")


def _issue_entity(directory: Path, name: str, out: Path, hosts: list[str], nodes: list[Path]) -> None:
    from gateway.trust.credentials import Credentials
    from gateway.trust.domains import Card, TrustDomain
    from gateway.trust.errors import TrustError

    if hosts:
        raise TrustError("an entity is a client and listens nowhere; leave --host out")
    if not nodes:
        raise TrustError("whom does the entity ask for its trace topic? give --node, the card.json of a gateway")
    domain, cards = TrustDomain.load(directory), [Card.load(path) for path in nodes]
    Credentials.issue(domain, name, cards, out, time.time())
    print(f"entity {name} in {out}; hand it to the program, which connects with this name as its client id")


@trust_app.command("show")
def trust_show(
    path: Annotated[Path, typer.Argument(metavar="PATH", help="Trust domain, identity, or OVERLAY.json.")],
    owner: Annotated[Path | None, typer.Option(metavar="DIR", help="The overlay's owner: shows clear names.")] = None,
    as_json: Json = False,
) -> None:
    """Describe a trust domain, an identity, or the rights of members in an overlay; print no secret."""
    from gateway.trust.domains import describe

    content = describe(path) if path.is_dir() or not path.exists() else _grants(path, owner)
    if as_json:
        print_json(content)
        return
    grants = content.pop("grants", [])
    print_table("", ["", ""], [[key, as_text(value)] for key, value in content.items()])
    if grants:
        print_table("grants", list(grants[0]), [[as_text(value) for value in grant.values()] for grant in grants])


def _grants(path: Path, owner: Path | None) -> dict[str, Any]:
    from gateway.owner.record import open_record_of
    from gateway.trust.domains import TrustDomain
    from gateway.trust.overlay_file import describe_grants, load_overlay

    overlay = load_overlay(path, int(time.time() * 1000))
    if owner is None:
        return describe_grants(overlay)
    domain = TrustDomain.load(owner)
    return describe_grants(overlay, open_record_of(domain, path)[0].clear_names(domain.root))


@trust_app.command("export")
def trust_export(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="Trust domain or identity.")],
    out: Annotated[Path, typer.Option(metavar="FILE", help="PEM file to write.")],
) -> None:
    """Write the public part for other tools: the certificate chain, and an identity's card."""
    from gateway.trust.domains import export

    export(directory, out)
    print(f"public part of {directory} in {out}; it holds no secret")


@trust_app.command("rotate")
def trust_rotate(
    directory: Annotated[Path, typer.Argument(metavar="IDENTITY_DIR")],
    domain: Annotated[Path, typer.Option(metavar="DIR", help="Trust domain that issued it.")],
    key: TokenKey = "",
) -> None:
    """Prepare a new key; the running process takes it once the overlay lists it."""
    from gateway.trust.domains import TrustDomain
    from gateway.trust.rotation import prepare

    made = prepare(directory, TrustDomain.load(domain), time.time(), key)
    print(f"next key of {made.name} in {made.directory}; give {made.directory / 'card.json'} to the overlay's owner")


@trust_app.command("grant")
def trust_grant(
    overlay: OverlayFile,
    owner: Owner,
    member: Member,
    publish: Publish = None,
    read: Read = None,
    history: Annotated[bool, typer.Option("--history", help="Ended epochs too, while their keys are kept.")] = False,
) -> None:
    """Give rights to a member, from the present epoch on."""
    from gateway.owner.signing import grant

    changed = grant(overlay, owner, member, _required(publish, read), time.time(), history)
    print(f"version {changed.policy.version} in {overlay}: {member} has these rights as soon as members adopt it")


@trust_app.command("revoke")
def trust_revoke(
    overlay: OverlayFile,
    owner: Owner,
    member: Member,
    publish: Publish = None,
    read: Read = None,
    at_once: Annotated[bool, typer.Option("--now", help="Do not wait for the end of the epoch.")] = False,
) -> None:
    """Take rights from a member: the named rights, or all of them."""
    from gateway.owner.signing import revoke
    from gateway.trust.overlay_file import date_of

    now = time.time()
    changed, taken = revoke(overlay, owner, member, _rights(publish, read) or None, now, at_once)
    when = "as soon as members adopt it" if taken.ends_s <= now else f"at {date_of(taken.ends_s)}"
    print(f"version {changed.policy.version} in {overlay}: these rights of {member} end {when}")
    if taken.bumped:
        print(f"new keys for {', '.join(taken.bumped)}: those that {member} holds seal nothing from then on")


def _rights(publish: list[str] | None, read: list[str] | None) -> list[tuple[str, Right]]:
    from keys.grants import Right

    return [(clear, Right.PUBLISH) for clear in publish or ()] + [(clear, Right.READ) for clear in read or ()]


def _required(publish: list[str] | None, read: list[str] | None) -> list[tuple[str, Right]]:
    from gateway.trust.errors import TrustError

    if not (publish or read):
        raise TrustError("which rights? name them with --publish FILTER or --read FILTER")
    return _rights(publish, read)


@trust_app.command("rekey")
def trust_rekey(
    description: Description, owner: Owner, out: Out, card: Cards = None, replace_lost: Lost = None
) -> None:
    """Sign with new material for the key servers; the servers, the issuer and the length of epochs may change."""
    from gateway.owner.cards import SignOptions
    from gateway.owner.signing import rekey

    options = SignOptions(cards=tuple(card or ()), replace_lost=tuple(replace_lost or ()))
    _print_signed(rekey(description, owner, out, time.time(), options), out)


# --------------------------------------------------------------------------------------------- overlay


@overlay_app.command("sign")
def overlay_sign(
    description: Description,
    owner: Owner,
    out: Out,
    card: Cards = None,
    replace_lost: Lost = None,
    overlap_hours: Annotated[
        float, typer.Option(min=0, max=24 * 365, help="How long the key of before a rotation counts.")
    ] = 24,
    new_tokens: Annotated[bool, typer.Option("--new-tokens", help="Hide names anew; the old tokens retire.")] = False,
    drop_retiring: Annotated[bool, typer.Option("--drop-retiring", help="End scopes with old tokens.")] = False,
    drained: Annotated[
        bool,
        typer.Option(
            "--drained", help="Nothing waits anywhere in scopes that become plain, sealed or shares_only, or cease to."
        ),
    ] = False,
    grace: Annotated[
        int, typer.Option(min=1, max=3600, metavar="SECONDS", help="Edges change: how long the former tree is open.")
    ] = 60,
) -> None:
    """Sign the next version of the overlay; at the first, deal the key servers' material."""
    from gateway.owner.cards import SignOptions
    from gateway.owner.signing import sign_overlay

    options: SignOptions = SignOptions(
        cards=tuple(card or ()),
        replace_lost=tuple(replace_lost or ()),
        overlap_hours=overlap_hours,
        new_tokens=new_tokens,
        drop_retiring=drop_retiring,
        drained=drained,
        grace_s=grace,
    )
    _print_signed(sign_overlay(description, owner, out, time.time(), options), out)


def _print_signed(signed: Signed, out: Path) -> None:
    from gateway.trust.overlay_file import date_of

    policy = signed.overlay.policy
    if signed.materials:
        print(f"material for the key servers, in force from {date_of(signed.since_s)}; no copy of it is kept here")
    for path in signed.materials:
        print(f"secret {path}: hand it to {path.stem} alone, erase it here, and restart that key server")
    if signed.bumped:
        print(f"new keys for {', '.join(signed.bumped)}: somebody left or lost a key, or refresh changed")
    faults = policy.server_faults
    if policy.key_servers and not faults:
        bears = "one that is away" if len(policy.key_servers) > 1 else "none that is away"
        print(f"key service of {len(policy.key_servers)}: bears {bears}, but none that lies")
    print(f"overlay {policy.overlay} version {policy.version} in {out}; give it to every member")


@overlay_app.command("show")
def overlay_show(path: Annotated[Path, typer.Argument(metavar="FILE")], as_json: Json = False) -> None:
    """Verify a signed overlay and describe it."""
    from gateway.trust.overlay_file import describe_overlay, load_overlay

    content = describe_overlay(load_overlay(path, int(time.time() * 1000)))
    if as_json:
        print_json(content)
        return
    print(f"overlay {content['overlay']} version {content['version']}, owner {content['owner']}")
    service, epochs = content["key_service"], content["epochs"]
    if service["servers"]:
        print(f"key service: {service['issuer']} of {len(service['servers'])}, bears {service['faults']} that lie")
        print(f"epochs of {epochs['length_s']} s, the first from {epochs['first']}")
    for title in ("regions", "changes", "scopes", "members"):
        rows = [[as_text(value) for value in entry.values()] for entry in content[title]]
        if rows:
            print_table(title, list(content[title][0]), rows)
    print(f"edges: {', '.join(f'{a}-{b}' for a, b in content['edges']) or 'none'}")
