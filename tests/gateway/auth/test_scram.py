"""SCRAM-SHA-256, the server: the RFC's example, and attacks. The client here is written from the RFC alone."""

from __future__ import annotations

import base64
import hashlib
import hmac
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.auth.scram import ITERATIONS_MIN, Decoys, ScramError, ScramServer, Verifier, saslprep

# RFC 7677 §3
SALT = base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
CLIENT_NONCE, SERVER_NONCE = "rOprNGfwEbeRWgbNEkqO", "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
VERIFIER = Verifier.from_password("pencil", SALT, 4096)
DECOYS = Decoys(b"d" * 32, ((4096, 16),))
NONCE = bytes(range(18))


def server(nonce: bytes = NONCE) -> ScramServer:
    return ScramServer(lambda name: (VERIFIER, True) if name == "user" else (DECOYS.verifier(name), False), nonce)


def b64(data: bytes) -> str:
    return base64.b64encode(data).decode()


class Client:
    """RFC 5802 §3, with every part open to be bent."""

    def __init__(self, password: str = "pencil", name: str = "user", nonce: str = CLIENT_NONCE, gs2: str = "n,,"):
        self.password, self.gs2 = password, gs2
        self.bare = f"n={name},r={nonce}"

    def first(self) -> bytes:
        return (self.gs2 + self.bare).encode()

    def final(self, challenge: bytes, **bent: str) -> bytes:
        parts = dict(part.split("=", 1) for part in challenge.decode().split(","))
        binding = bent.get("binding", b64(self.gs2.encode()))
        bare = f"c={binding},r={bent.get('nonce', parts['r'])}"
        salted = hashlib.pbkdf2_hmac("sha256", self.password.encode(), base64.b64decode(parts["s"]), int(parts["i"]))
        client_key = hmac.digest(salted, b"Client Key", "sha256")
        signed = f"{self.bare},{challenge.decode()},{bare}".encode()
        self.expected = (
            b"v=" + b64(hmac.digest(hmac.digest(salted, b"Server Key", "sha256"), signed, "sha256")).encode()
        )
        signature = hmac.digest(hashlib.sha256(client_key).digest(), signed, "sha256")
        proof = bytes(one ^ other for one, other in zip(client_key, signature, strict=True))
        return f"{bare},p={bent.get('proof', b64(proof))}".encode()


def test_the_example_of_rfc_7677() -> None:
    exchange = server()
    exchange._nonce = SERVER_NONCE  # the example's is no base64
    assert exchange.first_message(b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO") == (
        b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
    )
    answer = exchange.final(
        b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
    )
    assert answer == b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="
    assert exchange.username == "user"


@settings(max_examples=25, deadline=None)
@given(
    st.text(st.characters(codec="ascii", exclude_categories=["Cc"]), min_size=1, max_size=30), st.binary(min_size=18)
)
def test_whoever_knows_the_password_is_let_in_and_told_that_the_server_knows_it(password: str, nonce: bytes) -> None:
    verifier = Verifier.from_password(password, b"salt" * 4, ITERATIONS_MIN)
    exchange = ScramServer(lambda _: (verifier, True), nonce[:64])
    client = Client(password)
    answer = exchange.final(client.final(exchange.first_message(client.first())))
    assert answer == client.expected
    assert exchange.username == "user"


def test_names_are_decoded_and_prepared() -> None:
    asked: list[str] = []

    def lookup(name: str) -> tuple[Verifier, bool]:
        asked.append(name)
        return VERIFIER, True

    for name in ("a=2Cb=3Dc", "\u2168", "I\u00adX"):  # RFC 4013 §3
        ScramServer(lookup, NONCE).first_message(Client(name=name).first())
    assert asked == ["a,b=c", "IX", "IX"]
    assert saslprep("\u00aa") == "a"
    for prohibited in ("\u0007", "\u0627\u0031", "", "\u00ad"):
        with pytest.raises(ValueError, match=r"\w"):
            saslprep(prohibited)


def attack(exchange: ScramServer, message: bytes) -> None:
    with pytest.raises(ScramError):
        exchange.final(message)
    assert exchange.username is None
    with pytest.raises(ScramError):  # and there is no second try in the same exchange
        exchange.final(message)


def test_a_wrong_password_and_an_unknown_user_fail_alike() -> None:
    texts = []
    for client in (Client("pencli"), Client(name="nobody")):
        exchange = server()
        message = client.final(exchange.first_message(client.first()))
        with pytest.raises(ScramError) as refused:
            exchange.final(message)
        texts.append(str(refused.value))
    assert texts[0] == texts[1]


def test_an_unknown_user_cannot_be_told_by_its_salt() -> None:
    """Attack: asking again shows another salt, or the same as another name's, for names that nobody has."""
    one, again, other = (server().first_message(Client(name=name).first()) for name in ("nobody", "nobody", "noone"))
    assert one == again
    assert one != other
    assert len(one) == len(server().first_message(Client(name="user").first()))
    assert Decoys(b"e" * 32).verifier("nobody").salt != Decoys(b"d" * 32).verifier("nobody").salt
    shapes = {Decoys(b"d" * 32, ((4096, 16), (65536, 24))).verifier(str(number)).iterations for number in range(40)}
    assert shapes == {4096, 65536}


def test_a_recorded_exchange_cannot_be_replayed() -> None:
    client, first = Client(), server(NONCE)
    recorded = client.final(first.first_message(client.first()))
    first.final(recorded)
    second = server(NONCE[::-1])
    second.first_message(client.first())
    attack(second, recorded)


def test_a_nonce_that_is_not_ours_is_refused() -> None:
    for nonce in (CLIENT_NONCE, CLIENT_NONCE + "x" * 24, "", CLIENT_NONCE + b64(NONCE) + "x"):
        client, exchange = Client(), server()
        attack(exchange, client.final(exchange.first_message(client.first()), nonce=nonce))


@pytest.mark.parametrize("proof", ["", "!", b64(bytes(31)), b64(bytes(32)), b64(bytes(33)), b64(b"\xff" * 32)])
def test_a_wrong_proof_is_refused(proof: str) -> None:
    client, exchange = Client(), server()
    attack(exchange, client.final(exchange.first_message(client.first()), proof=proof))


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 255), st.integers(1, 255))
def test_any_changed_byte_of_the_proof_is_refused(place: int, change: int) -> None:
    client, exchange = Client(), server()
    message = client.final(exchange.first_message(client.first()))
    bare, proof = message.rsplit(b",p=", 1)
    bent = bytearray(base64.b64decode(proof))
    bent[place % 32] ^= change
    attack(exchange, bare + b",p=" + base64.b64encode(bent))


def test_a_changed_channel_binding_header_is_seen() -> None:
    """Attack: somebody between turns `y` or `p=` of the client into `n`, so that no channel is bound."""
    for chosen in ("y,,", "p=tls-exporter,,"):
        client, exchange = Client(gs2="n,,"), server()
        challenge = exchange.first_message(client.first())
        attack(exchange, client.final(challenge, binding=b64(chosen.encode())))
    with pytest.raises(ScramError, match="channel binding"):
        server().first_message(Client(gs2="p=tls-unique,,").first())
    client, exchange = Client(gs2="y,,"), server()  # we offer none, so this is what an honest client says
    exchange.final(client.final(exchange.first_message(client.first())))
    assert exchange.username == "user"


@pytest.mark.parametrize("gs2", ["n,a=admin,", "n,a=us=er,"])
def test_nobody_acts_for_another(gs2: str) -> None:
    with pytest.raises(ScramError):
        server().first_message(Client(gs2=gs2).first())


def test_fewer_iterations_than_the_rfc_allows_are_refused_wherever_they_come_from() -> None:
    weak = str(VERIFIER).replace("$4096:", "$1024:")
    for make in (lambda: Verifier.parse(weak), lambda: Verifier.from_password("x", SALT, 4095)):
        with pytest.raises(ValueError, match="iterations"):
            make()


def test_a_verifier_is_read_as_it_was_written_and_shows_no_secret() -> None:
    assert Verifier.parse(str(VERIFIER)) == VERIFIER
    assert b64(VERIFIER.stored_key) not in repr(VERIFIER)
    for broken in ("", "SCRAM-SHA-1$4096:AA==$AA==:AA==", str(VERIFIER)[:-8], str(VERIFIER) + "x"):
        with pytest.raises(ValueError, match=r"\w"):
            Verifier.parse(broken)


def test_truncated_messages_are_refused() -> None:
    client = Client()
    for end in range(len(client.first()) - len(CLIENT_NONCE) + 1):
        with pytest.raises(ScramError):
            server().first_message(client.first()[:end])
    exchange = server()
    message = client.final(exchange.first_message(client.first()))
    for end in range(len(message)):
        exchange = server()
        exchange.first_message(client.first())
        attack(exchange, message[:end])


HOSTILE: Any = [
    b"",
    b"\xff",
    b"n,,",
    b"n,,n=,r=x",
    b"n,,n=user,r=",
    b"n,,m=future,n=user,r=x",
    b"n,,n=us=er,r=x",
    b"n,,n=us=2cer,r=x",
    b"n,,n=user,r=x\x01y",
    b"n,,n=user,r=\xc3\xa4",
    b"n,,n=user\0,r=x",
    b"n,,n=user,r=" + b"x" * 600,
    b"n,,n=" + b"u" * 600 + b",r=x",
    b"n,,n=user,r=x," + b"e=x," * 2_000,
    b"n,,n=user,r=x,",
]


@pytest.mark.parametrize("message", HOSTILE)
def test_hostile_first_messages_are_refused(message: bytes) -> None:
    exchange = server()
    with pytest.raises(ScramError):
        exchange.first_message(message)
    with pytest.raises(ScramError):
        exchange.final(Client().final(b"r=x,s=AAAA,i=4096"))


@settings(max_examples=60, deadline=None)
@given(st.binary(max_size=80), st.binary(max_size=80))
def test_no_bytes_do_anything_but_be_refused(first: bytes, final: bytes) -> None:
    exchange = server()
    for step, message in ((exchange.first_message, first), (exchange.final, final)):
        try:
            step(message)
        except ScramError:
            continue
    assert exchange.username is None


def test_steps_out_of_order_are_refused() -> None:
    with pytest.raises(ScramError):
        server().final(b"c=biws,r=x,p=AAAA")
    exchange = server()
    exchange.first_message(Client().first())
    with pytest.raises(ScramError):
        exchange.first_message(Client().first())
