"""keys.identity: signatures, certificates, and X.509 that real TLS accepts."""

from __future__ import annotations

import hashlib
import hmac
import pickle
import ssl
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from hypothesis import given, settings
from hypothesis import strategies as st

from keys import identity
from keys.errors import BadContent, BadFrame, BadSignature, Expired, OurFault
from keys.identity import (
    CA_DAYS,
    CLOCK_SKEW_S,
    Certificate,
    Identity,
    Role,
    make_ca,
    make_leaf,
    party_id_of,
    public_key_of,
    verify,
)
from keys.sealedbox import seal_box
from tests.keys.helpers import PUBLISHER, STRANGER, assert_canonical, assert_strict, bit_flips, stream

OWNER = Identity.generate(stream("owner")(32))
NOW = 1_760_000_000.0
END_MS = 2_000_000_000_000
CERTIFICATE = Certificate.issue(
    OWNER,
    name="gateway-1",
    role=Role.GATEWAY,
    public_key=PUBLISHER.public_bytes,
    agreement_key=PUBLISHER.agreement_bytes,
    domain="acme",
    region=1,
    not_after_ms=END_MS,
)


# ------------------------------------------------------------------------------------------ signatures


def test_a_signature_holds_for_its_key_domain_and_data_only() -> None:
    signature = PUBLISHER.sign("veilmq/1 key", b"data")
    verify(PUBLISHER.public_bytes, "veilmq/1 key", b"data", signature)
    for public, domain, data, wrong in (
        (STRANGER.public_bytes, "veilmq/1 key", b"data", signature),
        (PUBLISHER.public_bytes, "veilmq/1 headers", b"data", signature),
        (PUBLISHER.public_bytes, "veilmq/1 key", b"date", signature),
        (PUBLISHER.public_bytes, "veilmq/1 ke", b"ydata", signature),
        (PUBLISHER.public_bytes, "veilmq/1 key", b"data", signature[:-1]),
        (PUBLISHER.public_bytes, "veilmq/1 key", b"data", b""),
        (b"short", "veilmq/1 key", b"data", signature),
    ):
        with pytest.raises(BadSignature):
            verify(public, domain, data, wrong)


def test_an_identity_comes_back_from_its_bytes() -> None:
    again = Identity.from_private_bytes(PUBLISHER.private_bytes())
    assert (again.public_bytes, again.party_id) == (PUBLISHER.public_bytes, PUBLISHER.party_id)
    assert again.party_id == party_id_of(again.public_bytes)
    with pytest.raises(OurFault):
        Identity.generate(b"short")


def test_the_private_key_does_not_show() -> None:
    assert repr(PUBLISHER) == f"Identity({PUBLISHER.party_id.hex()})"
    assert PUBLISHER.private_bytes().hex() not in repr(PUBLISHER)


def test_boxes_for_an_identity_open_with_its_one_secret() -> None:
    box = seal_box(PUBLISHER.agreement_bytes, b"key", b"purpose", stream("ephemeral")(32))
    assert Identity.from_private_bytes(PUBLISHER.private_bytes()).open_box(box, b"purpose") == b"key"
    with pytest.raises(BadContent):
        STRANGER.open_box(box, b"purpose")


def test_the_agreement_key_is_neither_the_signing_key_nor_the_secret() -> None:
    """Signing and agreeing share one stored secret, but no key: what is done with one says nothing about the other."""
    keys = {PUBLISHER.agreement_bytes, PUBLISHER.public_bytes, PUBLISHER.private_bytes(), STRANGER.agreement_bytes}
    assert len(keys) == 4


# ---------------------------------------------------------------------------------------- certificates


def test_the_frame_of_a_certificate_is_strict() -> None:
    assert_strict(Certificate.decode, Certificate.encode, CERTIFICATE.encode())  # type: ignore[arg-type]
    assert Certificate.decode(CERTIFICATE.encode()) == CERTIFICATE


def test_a_flipped_bit_anywhere_is_noticed() -> None:
    for changed in bit_flips(CERTIFICATE.encode()):
        with pytest.raises((BadFrame, BadSignature)):
            Certificate.decode(changed).verify(OWNER.public_bytes, 0)


def test_only_the_owner_certifies_and_not_for_ever() -> None:
    CERTIFICATE.verify(OWNER.public_bytes, END_MS)
    with pytest.raises(Expired):
        CERTIFICATE.verify(OWNER.public_bytes, END_MS + 1)
    with pytest.raises(BadSignature):
        CERTIFICATE.verify(PUBLISHER.public_bytes, 0)
    prolonged = replace(CERTIFICATE, not_after_ms=END_MS * 2)
    with pytest.raises(BadSignature):
        prolonged.verify(OWNER.public_bytes, END_MS + 1)


def test_every_role_has_its_code() -> None:
    for role in Role:
        assert Certificate.decode(replace(CERTIFICATE, role=role).encode()).role is role


@pytest.mark.parametrize(
    "changes",
    [
        {"name": ""},
        {"name": "../escape"},
        {"name": "two\nlines"},
        {"name": "a" * 65},
        {"domain": "ac me"},
        {"public_key": bytes(31)},
        {"region": -1},
        {"not_after_ms": 1 << 64},
        {"agreement_key": bytes(33)},
    ],
)
def test_certificates_that_cannot_be_are_not_made(changes: dict[str, object]) -> None:
    with pytest.raises(OurFault):
        replace(CERTIFICATE, **changes).signed_bytes()  # type: ignore[arg-type]


def test_certificates_that_cannot_be_are_not_read() -> None:
    frame = CERTIFICATE.encode()
    assert frame[3] == 2
    assert frame[6:15] == b"gateway-1"
    for offset, data in ((3, b"\0"), (3, b"\x1f"), (6, b"/"), (6, b"\n"), (79, b"\xff\xff"), (81, b" ")):
        with pytest.raises(BadFrame):
            Certificate.decode(frame[:offset] + data + frame[offset + len(data) :])


def test_an_unsigned_certificate_is_not_sent() -> None:
    with pytest.raises(OurFault):
        replace(CERTIFICATE, signature=b"").encode()


@settings(max_examples=60)
@given(st.integers(0, 170), st.binary(min_size=1, max_size=4))
def test_arbitrary_changes_are_refused_or_canonical(offset: int, data: bytes) -> None:
    frame = CERTIFICATE.encode()
    changed = frame[:offset] + data + frame[offset + len(data) :]
    assert_canonical(Certificate.decode, Certificate.encode, changed)  # type: ignore[arg-type]


# ----------------------------------------------------------------------------------------------- X.509


def context(
    folder: Path, side: ssl._SSLMethod, ca: bytes, identity: Identity, leaf: bytes, name: str
) -> ssl.SSLContext:
    """A TLS 1.3 context that shows `leaf` and trusts `ca` alone."""
    chain, key = folder / f"{name}.pem", folder / f"{name}.key"
    chain.write_bytes(leaf)
    key.write_bytes(identity.private_pem())
    made = ssl.SSLContext(side)
    made.minimum_version = ssl.TLSVersion.TLSv1_3
    made.verify_mode = ssl.CERT_REQUIRED
    made.verify_flags |= ssl.VERIFY_X509_STRICT
    made.load_verify_locations(cadata=ca.decode())
    made.load_cert_chain(chain, key)
    return made


def handshake(client: ssl.SSLContext, server: ssl.SSLContext, host: str) -> tuple[ssl.SSLObject, ssl.SSLObject]:
    """Both ends of a TLS connection through memory."""
    to_client, to_server = ssl.MemoryBIO(), ssl.MemoryBIO()
    near = client.wrap_bio(to_client, to_server, server_hostname=host)
    far = server.wrap_bio(to_server, to_client, server_side=True)
    for _ in range(4):
        for end in (near, far):
            try:
                end.do_handshake()
            except ssl.SSLWantReadError:
                continue
    return near, far


def leaf_for(ca: Identity, subject: Identity | bytes, name: str, **changes: object) -> bytes:
    arguments: dict[str, object] = {"hosts": ["localhost", "127.0.0.1", "::1"], "now": NOW, "days": 30000}
    arguments |= changes
    return make_leaf(ca, make_ca(ca, "acme", NOW), subject, name, "acme", **arguments)  # type: ignore[arg-type]


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "::1"])
def test_real_tls_accepts_both_sides_and_names_their_keys(tmp_path: Path, host: str) -> None:
    ca = make_ca(OWNER, "acme", NOW)
    server_leaf = leaf_for(OWNER, STRANGER, "replica-1")
    client_leaf = leaf_for(OWNER, PUBLISHER.public_bytes, "gateway-1")
    server = context(tmp_path, ssl.PROTOCOL_TLS_SERVER, ca, STRANGER, server_leaf, "server")
    client = context(tmp_path, ssl.PROTOCOL_TLS_CLIENT, ca, PUBLISHER, client_leaf, "client")
    near, far = handshake(client, server, host)
    assert public_key_of(near.getpeercert(binary_form=True) or b"") == STRANGER.public_bytes
    assert public_key_of(far.getpeercert(binary_form=True) or b"") == PUBLISHER.public_bytes
    assert ("URI", "veilmq:gateway-1") in (far.getpeercert() or {})["subjectAltName"]


def test_real_tls_refuses_another_authority_and_another_host(tmp_path: Path) -> None:
    ca, other = make_ca(OWNER, "acme", NOW), make_ca(STRANGER, "acme", NOW)
    leaf = leaf_for(OWNER, STRANGER, "replica-1")
    server = context(tmp_path, ssl.PROTOCOL_TLS_SERVER, ca, STRANGER, leaf, "server")
    distrusting = context(tmp_path, ssl.PROTOCOL_TLS_CLIENT, other, STRANGER, leaf, "one")
    trusting = context(tmp_path, ssl.PROTOCOL_TLS_CLIENT, ca, STRANGER, leaf, "two")
    for client, host in ((distrusting, "localhost"), (trusting, "elsewhere")):
        with pytest.raises(ssl.SSLCertVerificationError):
            handshake(client, server, host)


class Vouching(Identity):
    """A party whose key stands elsewhere: a signer, and a working key."""

    def __init__(self, signer: Identity, working: Identity) -> None:
        super().__init__(working._private, Ed25519Signer(signer))


class Ed25519Signer:
    """A key that only signs."""

    def __init__(self, identity: Identity) -> None:
        self.public_bytes, self.sign = identity.public_bytes, identity._sign


def der(pem: bytes) -> bytes:
    return ssl.PEM_cert_to_DER_cert(pem.decode())


def test_a_leaf_of_a_working_key_is_its_identitys() -> None:
    party = Vouching(PUBLISHER, STRANGER)
    assert party.public_bytes == PUBLISHER.public_bytes
    assert party.working_bytes == STRANGER.public_bytes
    leaf = der(leaf_for(OWNER, party, "gateway-1"))
    assert public_key_of(leaf) == PUBLISHER.public_bytes
    shown = x509.load_der_x509_certificate(leaf).public_key()
    assert shown.public_bytes_raw() == STRANGER.public_bytes  # type: ignore[union-attr]
    assert party.private_bytes() == STRANGER.private_bytes()
    assert party.agreement_bytes == STRANGER.agreement_bytes != PUBLISHER.agreement_bytes
    verify(PUBLISHER.public_bytes, "a", b"b", party.sign("a", b"b"))


def test_an_authority_cannot_lend_a_vouched_key_or_prolong_it() -> None:
    """An authority that a thief holds issues any leaf: neither a foreign key nor another end is vouched for."""
    uri = next(
        name
        for name in x509.load_der_x509_certificate(der(leaf_for(OWNER, Vouching(PUBLISHER, STRANGER), "n", days=30)))
        .extensions.get_extension_for_class(x509.SubjectAlternativeName)
        .value.get_values_for_type(x509.UniformResourceIdentifier)
        if name.startswith(identity.WORKING_KEY_URI)
    )
    own = uri.removeprefix(identity.WORKING_KEY_URI)
    forged = PUBLISHER.public_bytes + OWNER.sign(identity.WORKING_KEY_DOMAIN, OWNER.public_bytes)
    for text, key, days in (
        (own, OWNER, 30),
        (own, STRANGER, 31),
        (forged.hex(), OWNER, 30),
        (own[:64], STRANGER, 30),
        ("zz", STRANGER, 30),
    ):
        made = vouched_leaf(f"{identity.WORKING_KEY_URI}{text}", key, days)
        with pytest.raises((BadSignature, BadFrame)):
            public_key_of(made)
    assert public_key_of(vouched_leaf(uri, STRANGER, 30)) == PUBLISHER.public_bytes


def vouched_leaf(uri: str, key: Identity, days: int) -> bytes:
    """A leaf of `key` that an authority made with this name."""
    name = x509.Name([x509.NameAttribute(x509.oid.NameOID.COMMON_NAME, "n")])
    start = datetime.fromtimestamp(NOW, UTC)
    builder = x509.CertificateBuilder().subject_name(name).issuer_name(name).serial_number(1)
    builder = builder.public_key(key._working().public_key()).not_valid_before(start)
    builder = builder.not_valid_after(start + timedelta(days=days))
    names = x509.SubjectAlternativeName([x509.UniformResourceIdentifier(uri)])
    made = builder.add_extension(names, critical=False).sign(OWNER._working(), None)
    return made.public_bytes(serialization.Encoding.DER)


def test_a_party_that_only_signs_has_nothing_to_derive_from() -> None:
    only = Identity(None, Ed25519Signer(PUBLISHER))
    verify(PUBLISHER.public_bytes, "a", b"b", only.sign("a", b"b"))
    for derived in (only.private_bytes, lambda: only.hybrid_bytes, lambda: only.working_bytes):
        with pytest.raises(OurFault, match="stands in a token"):
            derived()


def test_a_leaf_cannot_certify_others() -> None:
    certificate = x509.load_pem_x509_certificate(leaf_for(OWNER, STRANGER, "replica-1"))
    assert not certificate.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    assert not certificate.extensions.get_extension_for_class(x509.KeyUsage).value.key_cert_sign


def test_x509_is_repeatable_and_serials_differ() -> None:
    assert leaf_for(OWNER, STRANGER, "replica-1") == leaf_for(OWNER, STRANGER, "replica-1")
    serials = {
        x509.load_pem_x509_certificate(pem).serial_number
        for pem in (
            leaf_for(OWNER, STRANGER, "replica-1"),
            leaf_for(OWNER, STRANGER, "replica-2"),
            leaf_for(OWNER, PUBLISHER, "replica-1"),
            leaf_for(OWNER, STRANGER, "replica-1", now=NOW + 1),
            make_ca(OWNER, "acme", NOW),
        )
    }
    assert len(serials) == 5


@pytest.mark.parametrize(
    ("name", "changes"), [("a b", {}), ("n", {"hosts": ["hôte"]}), ("n", {"hosts": [""]}), ("n", {"days": 0})]
)
def test_leaves_that_cannot_be_are_our_fault(name: str, changes: dict[str, object]) -> None:
    with pytest.raises(OurFault):
        leaf_for(OWNER, STRANGER, name, **changes)


def test_a_leaf_needs_the_certificate_of_its_own_authority() -> None:
    with pytest.raises(OurFault):
        make_leaf(OWNER, make_ca(STRANGER, "acme", NOW), PUBLISHER, "n", "acme", [], NOW, 30)
    with pytest.raises(OurFault):
        leaf_for(OWNER, b"short", "n")
    with pytest.raises(OurFault):
        make_ca(OWNER, "not a domain", NOW)


@pytest.mark.parametrize("data", [b"", b"junk", b"0" * 100])
def test_what_is_no_certificate_is_refused(data: bytes) -> None:
    with pytest.raises(BadFrame):
        public_key_of(data)


def test_an_identity_is_not_pickled() -> None:
    with pytest.raises(OurFault, match="pickled"):
        pickle.dumps(PUBLISHER)


def test_signatures_do_not_show() -> None:
    assert repr(CERTIFICATE.signature)[2:-1] not in repr(CERTIFICATE)


def read(pem: bytes) -> x509.Certificate:
    return x509.load_pem_x509_certificate(pem)


def test_an_authority_certifies_parties_and_no_other_authority() -> None:
    """RFC 5280, 4.2.1.9 and 4.2.1.3: both extensions are critical in an authority's certificate."""
    ca = read(make_ca(OWNER, "acme", NOW))
    constraints = ca.extensions.get_extension_for_class(x509.BasicConstraints)
    assert constraints.critical
    assert (constraints.value.ca, constraints.value.path_length) == (True, 0)
    usage = ca.extensions.get_extension_for_class(x509.KeyUsage)
    assert usage.critical
    assert used(usage.value) == {"key_cert_sign", "crl_sign"}


def used(usage: x509.KeyUsage) -> set[str]:
    names = (
        "digital_signature", "key_cert_sign", "crl_sign", "content_commitment", "key_encipherment",
        "data_encipherment", "key_agreement",
    )  # fmt: skip
    return {name for name in names if getattr(usage, name)}


def test_a_leaf_signs_handshakes_of_both_sides_and_nothing_else() -> None:
    leaf = read(leaf_for(OWNER, STRANGER, "replica-1"))
    by_class = {type(one.value): one for one in leaf.extensions}
    assert by_class[x509.BasicConstraints].critical
    assert by_class[x509.KeyUsage].critical
    assert used(leaf.extensions.get_extension_for_class(x509.KeyUsage).value) == {"digital_signature"}
    assert not by_class[x509.ExtendedKeyUsage].critical
    assert not by_class[x509.SubjectAlternativeName].critical
    oid = x509.oid.ExtendedKeyUsageOID
    uses = leaf.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    assert list(uses) == [oid.SERVER_AUTH, oid.CLIENT_AUTH]


@pytest.mark.parametrize("days", [1, 2, 30])
def test_certificates_begin_a_skew_earlier_and_last_their_days(days: int) -> None:
    now = datetime.fromtimestamp(NOW, UTC)
    for pem, lasts in ((leaf_for(OWNER, STRANGER, "n", days=days), days), (make_ca(OWNER, "acme", NOW), CA_DAYS)):
        certificate = read(pem)
        assert certificate.not_valid_before_utc == now - timedelta(seconds=CLOCK_SKEW_S)
        assert certificate.not_valid_after_utc == now + timedelta(days=lasts)


def test_a_long_domain_fits_the_name_of_its_authority() -> None:
    """A common name has at most 64 characters (RFC 5280, appendix A)."""
    (name,) = read(make_ca(OWNER, "d" * 64, NOW)).subject.get_attributes_for_oid(x509.oid.NameOID.COMMON_NAME)
    assert name.value == "VeilMQ " + "d" * 57


@pytest.mark.parametrize("host", ["", "hôte", "two words\n", "\t", "a\x7f"])
def test_what_is_no_host_is_our_fault(host: str) -> None:
    with pytest.raises(OurFault, match="host"):
        leaf_for(OWNER, STRANGER, "n", hosts=[host])


def test_a_certificate_of_another_kind_of_key_is_refused() -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([])
    now = datetime.fromtimestamp(NOW, UTC)
    made = (
        x509.CertificateBuilder(name, name, key.public_key(), 1, now, now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=True)
        .sign(key, hashes.SHA256())
    )
    with pytest.raises(BadFrame, match="Ed25519"):
        public_key_of(made.public_bytes(serialization.Encoding.DER))


def test_names_and_codes_of_roles_are_those_of_the_protocol() -> None:
    """Certificates of one release hold in another."""
    assert {role.value: code for role, code in identity._ROLE_CODES.items()} == {
        "replica": 1, "gateway": 2, "ingest": 3, "owner": 4, "keyserver": 5, "entity": 6, "hosted": 7,
    }  # fmt: skip


def test_a_certificate_is_signed_in_its_domain() -> None:
    assert CERTIFICATE.signature == OWNER.sign("veilmq/1 certificate", CERTIFICATE.signed_bytes())


def test_keys_and_signatures_are_derived_as_the_protocol_says() -> None:
    secret = PUBLISHER.private_bytes()
    private = Ed25519PrivateKey.from_private_bytes(secret)
    assert PUBLISHER.sign("veilmq/1 key", b"data") == private.sign(b"veilmq/1 key\0data")
    assert PUBLISHER.party_id == hashlib.sha256(private.public_key().public_bytes_raw()).digest()[:16]
    agreement = X25519PrivateKey.from_private_bytes(hmac.digest(secret, b"veilmq/1 agreement\1", "sha256"))
    assert PUBLISHER.agreement_bytes == agreement.public_key().public_bytes_raw()
    again = Identity.from_private_bytes(secret)
    assert (again.private_bytes(), again.sign("d", b"")) == (secret, PUBLISHER.sign("d", b""))
    loaded = serialization.load_pem_private_key(PUBLISHER.private_pem(), None)
    assert isinstance(loaded, Ed25519PrivateKey)
    assert loaded.private_bytes_raw() == secret


def test_the_frame_of_a_certificate_is_spelled_as_the_protocol_says() -> None:
    parts = (
        b"\1\6\0\2", b"\0\x09gateway-1", PUBLISHER.public_bytes, PUBLISHER.agreement_bytes, b"\0\4acme",
        (1).to_bytes(4), END_MS.to_bytes(8),
    )  # fmt: skip
    assert CERTIFICATE.signed_bytes() == b"".join(parts)


def test_names_in_x509_are_those_of_the_overlay_and_keys_name_each_other() -> None:
    ca, leaf = read(make_ca(OWNER, "acme", NOW)), read(leaf_for(OWNER, STRANGER, "replica-1"))
    assert ca.subject == ca.issuer == leaf.issuer
    oid = x509.oid.NameOID
    named = [(one.oid, one.value) for one in (*ca.subject, *leaf.subject)]
    assert named == [
        (oid.ORGANIZATION_NAME, "acme"), (oid.COMMON_NAME, "VeilMQ acme"),
        (oid.ORGANIZATION_NAME, "acme"), (oid.COMMON_NAME, "replica-1"),
    ]  # fmt: skip
    for certificate, key, issuer in ((ca, OWNER, OWNER), (leaf, STRANGER, OWNER)):
        own = certificate.extensions.get_extension_for_class(x509.SubjectKeyIdentifier)
        above = certificate.extensions.get_extension_for_class(x509.AuthorityKeyIdentifier)
        assert (own.critical, above.critical) == (False, False)
        assert own.value.digest == hashlib.sha1(key.public_bytes).digest()
        assert above.value.key_identifier == hashlib.sha1(issuer.public_bytes).digest()


def test_serial_numbers_are_positive_and_have_20_octets() -> None:
    """RFC 5280, 4.1.2.2."""
    for pem in (make_ca(OWNER, "acme", NOW), leaf_for(OWNER, STRANGER, "n")):
        assert read(pem).serial_number >> 152 == 1


@pytest.mark.parametrize("host", ["::1", "10.0.0.1", "localhost", "*.example.org"])
def test_hosts_are_addresses_or_names(host: str) -> None:
    names = read(leaf_for(OWNER, STRANGER, "n", hosts=[host])).extensions
    found = names.get_extension_for_class(x509.SubjectAlternativeName).value
    kind = x509.IPAddress if host in ("::1", "10.0.0.1") else x509.DNSName
    assert [str(each) for each in found.get_values_for_type(kind)] == [host]
    assert found.get_values_for_type(x509.UniformResourceIdentifier) == ["veilmq:n"]
