"""Three stock Mosquittos as a region: killed, corrupting, limited; nothing is lost and nothing wrong is delivered.

Each run has at both ends unchanged paho clients at a gateway process of their own.
"""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import paho.mqtt.client as paho
import pytest

from gateway.overlay.region_client import Arrival, RegionClient
from tests.bench.peers import wait_for
from tests.conftest import ROOT, tool
from tests.gateway.overlay_processes import ENVIRONMENT, run_veilmq
from tests.interop.hosted_region import CorruptingHop, Mosquittos, Region
from tests.ports import free_ports
from tests.waits import until, wait_until

pytestmark = [pytest.mark.tools, pytest.mark.invariant(63)]

THREE = ("cloud-a", "cloud-b", "cloud-c")
FIVE = (*THREE, "cloud-d", "cloud-e")
LANES = 3


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Callable[..., tuple[Mosquittos, Region]]]:
    made: list[Mosquittos | Region] = []

    def build(
        names: tuple[str, ...] = THREE, behind: tuple[str, ...] = (), records: int = 256
    ) -> tuple[Mosquittos, Region]:
        brokers, region = Mosquittos(tmp_path, names), Region(tmp_path)
        made.extend((region, brokers))
        region.describe_hosted(brokers, behind, records)
        return brokers, region

    yield build
    for each in made:
        each.stop()


class Reader:
    """A paho client at `control` that keeps what it gets, by topic."""

    def __init__(self, region: Region, topic_filter: str = "plant/#") -> None:
        self.got: dict[str, list[bytes]] = {}
        self.retained: list[bytes] = []
        client = region.client("control", f"reader-{time.monotonic()}", paho.MQTTv5)
        client.on_message = self._on_message
        client.subscribe(topic_filter, 1)

    def _on_message(self, client: paho.Client, userdata: object, message: paho.MQTTMessage) -> None:
        self.got.setdefault(message.topic, []).append(message.payload)
        if message.retain:
            self.retained.append(message.payload)

    @property
    def count(self) -> int:
        return sum(map(len, self.got.values()))


def accepted(region: Region, gateway: str = "control") -> bool:
    return wait_until(lambda: region.figures(gateway)["counts"].get("subscriptions_accepted", 0) >= 1)


def refusals(region: Region) -> int:
    counts = region.figures("control")["counts"]
    return sum(count for name, count in counts.items() if name.startswith("refused"))


def links_up(region: Region, gateway: str, count: int) -> bool:
    return wait_until(lambda: region.figures(gateway)["links_up"] == count)


def expected(numbers: range) -> dict[str, list[bytes]]:
    return {f"plant/{lane}": [b"%d" % n for n in numbers if n % LANES == lane] for lane in range(LANES)}


def publish(device: paho.Client, numbers: range, at: dict[int, Callable[[], object]] | None = None) -> None:
    """About 200 a second, over LANES topics; `at`: what happens before a number."""
    for number in numbers:
        if at and number in at:
            at[number]()
        device.publish(f"plant/{number % LANES}", b"%d" % number, qos=1)
        time.sleep(0.005)


def test_one_broker_is_killed_and_comes_back_while_another_corrupts_now_and_then(make):
    brokers, region = make(behind=("cloud-b",))
    brokers.start()
    with CorruptingHop(brokers, "cloud-b", every=10).running() as hop:
        region.start("site", "control")
        reader = Reader(region)
        assert accepted(region)
        assert links_up(region, "site", 3)
        device = region.client("site", "device")
        publish(device, range(600), {150: lambda: brokers.kill("cloud-a"), 350: lambda: brokers.start("cloud-a")})
        assert wait_until(lambda: reader.count >= 600), reader.count
        time.sleep(0.5)  # repetitions, if there were any
        assert reader.got == expected(range(600))
        assert hop.altered > 10  # of 600 publications fewer pass when many travel in one packet
        figures = region.figures("control")
        assert figures["suspected"].get("cloud-b", 0) > 0
        assert not figures["named"]


@pytest.mark.slow
def test_of_five_one_is_killed_for_good_and_one_corrupts_everything(make):
    brokers, region = make(FIVE, behind=("cloud-b",))
    brokers.start()
    with CorruptingHop(brokers, "cloud-b", every=1, wholly=True).running() as hop:
        region.start("site", "control")
        reader = Reader(region)
        assert accepted(region)
        assert links_up(region, "site", 5)
        device = region.client("site", "device")
        publish(device, range(600), {200: lambda: brokers.kill("cloud-a")})
        assert wait_until(lambda: reader.count >= 600), reader.count
        time.sleep(0.5)
        assert reader.got == expected(range(600))
        assert hop.altered > 100  # of packets: a batch is one
        assert not region.figures("control")["named"]


@pytest.mark.slow
def test_with_more_faults_than_the_region_bears_nothing_wrong_is_delivered_and_delivery_resumes(make):
    """f = 1, and two are faulty at the same time: what is sent then may be lost, since stock brokers forget."""
    brokers, region = make(behind=("cloud-b",), records=1)  # packets are counted
    brokers.start()
    with CorruptingHop(brokers, "cloud-b", every=1, wholly=True).running() as hop:
        region.start("site", "control")
        reader = Reader(region)
        assert accepted(region)
        assert links_up(region, "site", 3)
        device = region.client("site", "device")
        brokers.kill("cloud-a")
        publish(device, range(60))
        assert wait_until(lambda: refusals(region) >= 60), region.figures("control")
        assert reader.count == 0
        hop.every = 0
        brokers.start("cloud-a")
        assert links_up(region, "site", 3)
        assert links_up(region, "control", 3)
        time.sleep(11)  # as long as a reader waits for keys of what came before
        publish(device, range(60, 120))
        later = expected(range(60, 120))
        # What was sent before may still come: of each lane the last one is waited for, not a number of them.
        assert wait_until(lambda: all(later[lane][-1] in reader.got.get(lane, ()) for lane in later)), reader.count
        for lane, got in reader.got.items():
            assert got[-20:] == later[lane]
            assert set(got) <= set(expected(range(120))[lane])
            assert len(set(got)) == len(got)
        print(f"{reader.count - 60} of 60 came after the recovery")


def test_retained_is_there_for_a_gateway_that_joins_late_and_cleared_for_the_next(make):
    brokers, region = make()
    brokers.start()
    region.start("site")
    device = region.client("site", "device")
    assert links_up(region, "site", 3)
    device.publish("plant/0", b"kept", qos=1, retain=True).wait_for_publish(10)
    device.publish("plant/1", b"gone", qos=1, retain=True).wait_for_publish(10)
    device.publish("plant/1", b"", qos=1, retain=True).wait_for_publish(10)
    assert wait_until(lambda: region.figures("site")["outbox_depth"] == 0)
    brokers.kill("cloud-c")
    region.start("control")
    reader = Reader(region)
    assert wait_until(lambda: reader.got == {"plant/0": [b"kept"]}), reader.got
    assert accepted(region)
    next_one = Reader(region)
    assert wait_until(lambda: next_one.got == {"plant/0": [b"kept"]}), next_one.got
    assert next_one.retained == [b"kept"]
    device.publish("plant/2", b"live", qos=1)
    assert wait_until(lambda: reader.got.get("plant/2") == [b"live"])
    assert "plant/1" not in reader.got | next_one.got, "what was cleared before is no message"


def test_who_joins_between_two_publications_gets_the_next_one(make):
    """No stock broker tells a newcomer which keys are in use: each publication has to bring its own."""
    brokers, region = make()
    brokers.start()
    region.start("site", "control")
    assert links_up(region, "site", 3)
    device = region.client("site", "device")
    device.publish("plant/0", b"before", qos=1).wait_for_publish(10)
    assert wait_until(lambda: region.figures("site")["outbox_depth"] == 0)
    reader = Reader(region)
    assert accepted(region)
    device.publish("plant/0", b"after", qos=1)
    assert wait_until(lambda: reader.got == {"plant/0": [b"after"]}), reader.got


def test_too_large_for_a_majority_is_refused_to_the_device_and_for_one_broker_passes_it_by(make):
    brokers, region = make()
    for name in THREE[:1]:
        brokers.configure(name, "max_packet_size 20000")
    brokers.start()
    region.start("site", "control")
    reader = Reader(region)
    assert accepted(region)
    assert links_up(region, "site", 3)
    codes: list[int] = []
    device = region.client("site", "device", paho.MQTTv5)
    device.on_publish = lambda client, userdata, mid, reason, properties: codes.append(reason.value)
    device.publish("plant/0", b"x" * 40_000, qos=1)
    assert wait_until(lambda: codes == [0])
    assert wait_until(lambda: reader.got.get("plant/0") == [b"x" * 40_000])
    assert wait_until(lambda: region.figures("site")["outbox_depth"] == 0)
    brokers.kill("cloud-b")
    brokers.configure("cloud-b", "max_packet_size 20000")
    brokers.start("cloud-b")
    assert wait_until(lambda: region.figures("site")["peers"]["cloud-b"]["dialled"]["reconnects"] == 1)
    assert links_up(region, "site", 3)
    device.publish("plant/0", b"y" * 40_000, qos=1)
    assert wait_until(lambda: codes == [0, 0x97]), codes
    old = region.client("site", "old", paho.MQTTv311)
    old.publish("plant/0", b"z" * 40_000, qos=1).wait_for_publish(10)  # else it would repeat that for ever
    device.publish("plant/0", b"small", qos=1)
    assert wait_until(lambda: reader.got["plant/0"][1:] == [b"small"])


@pytest.mark.slow
def test_batches_are_no_larger_than_what_a_majority_takes(make):
    """Each publication fits; so does what goes together, and none is taken for one that others carry."""
    brokers, region = make()
    for name in THREE:
        brokers.configure(name, "max_packet_size 6000")
    brokers.start()
    region.start("site", "control")
    reader = Reader(region)
    assert accepted(region)
    assert links_up(region, "site", 3)
    device = region.client("site", "device", paho.MQTTv5)
    sent = [b"%03d" % number + b"x" * 500 for number in range(200)]
    for content in sent:
        device.publish("plant/0", content, qos=1)
    assert wait_until(lambda: region.figures("site")["outbox_depth"] == 0)
    assert wait_until(lambda: reader.got.get("plant/0") == sent), len(reader.got.get("plant/0", []))
    assert region.figures("site")["peers"]["cloud-a"]["dialled"]["reconnects"] == 0


def test_a_limit_that_brokers_do_not_announce_loses_nothing(make):
    """Mosquitto says nothing of its `message_size_limit` when a gateway connects, and refuses what is longer."""
    brokers, region = make()
    for name in THREE:
        brokers.configure(name, "message_size_limit 6000")
    brokers.start()
    region.start("site", "control")
    reader = Reader(region)
    assert accepted(region)
    assert links_up(region, "site", 3)
    codes: list[int] = []
    device = region.client("site", "device", paho.MQTTv5)
    device.on_publish = lambda client, userdata, mid, reason, properties: codes.append(reason.value)
    sent = [b"%03d" % number + b"x" * 500 for number in range(200)]
    for content in sent:
        device.publish("plant/0", content, qos=1)
    assert wait_until(lambda: reader.count >= 200), reader.count
    assert sorted(reader.got["plant/0"]) == sent
    assert wait_until(lambda: region.figures("site")["outbox_depth"] == 0)
    counts = region.figures("site")["counts"]
    assert counts["batches_cut"] > 0
    device.publish("plant/0", b"y" * 60_000, qos=1)
    assert wait_until(lambda: codes == [0] * 200 + [0x97]), codes[200:]


@pytest.mark.parametrize(
    ("line", "why"),
    [("max_qos 0", "takes QoS 0 at most"), ("retain_available false", "does not retain messages")],
)
def test_a_broker_that_will_not_do_stays_down_with_one_line(make, line: str, why: str):
    brokers, region = make()
    brokers.configure("cloud-a", line)
    brokers.start()
    region.start("site")
    assert links_up(region, "site", 2)
    assert wait_until(lambda: why in region.log("site"))
    assert len([text for text in region.log("site").splitlines() if why in text]) == 1


def test_wrong_passwords_host_names_and_authorities_keep_the_link_down(make):
    brokers, region = make()
    brokers.start()
    (region.directory / "site-cloud-a.password").write_text("wrong")
    path = region.directory / "overlay.yaml"
    elsewhere = path.read_text().replace(
        f"localhost:{brokers.ports['cloud-b']}", f"127.0.0.2:{brokers.ports['cloud-b']}"
    )
    path.write_text(elsewhere.replace("cloud-c/ca.pem", "cloud-a/ca.pem"))
    region.veilmq("overlay", "sign", "overlay.yaml", "--owner", "owner", "--out", "overlay.json")
    region.hand_out("site")
    brokers.stop()
    for name in THREE:
        text = (brokers.directory / name / "mosquitto.conf").read_text().replace(" 127.0.0.1", " 0.0.0.0")
        (brokers.directory / name / "mosquitto.conf").write_text(text)
    brokers.start()
    region.start("site")
    log = lambda: region.log("site")  # noqa: E731
    assert wait_until(lambda: "refused the connection" in log() and log().count("shows a certificate") == 2), log()
    assert region.figures("site")["links_up"] == 0
    assert "secret of site" not in log()


# ---------------------------------------------------------------------------------------------- veilmq check


def test_check_probes_each_broker_and_says_in_one_line_what_rules_one_out(make):
    brokers, region = make()
    brokers.configure("cloud-b", "retain_available false")
    acl = region.directory / "acl"
    acl.write_text("user site\ntopic readwrite plant/#\n")
    brokers.configure("cloud-c", f"acl_file {acl}")
    brokers.start()
    result = run_veilmq("check", "-c", "site.yaml", "--probe", cwd=region.directory)
    assert result.returncode == 2
    assert (
        f"ok: cloud-a (localhost:{brokers.ports['cloud-a']}): carries retained, user properties, QoS 1" in result.stdout
    )
    assert len(result.stderr.splitlines()) == 2
    assert "does not retain messages" in result.stderr
    assert "does not let us publish below veilmq/ (0x87)" in result.stderr
    brokers.stop()
    for name in THREE:
        brokers.configure(name, "max_packet_size 30000")
    brokers.start()
    result = run_veilmq("check", "-c", "site.yaml", "--probe", cwd=region.directory)
    assert result.returncode == 0, result.stderr
    assert result.stdout.count("packets of up to 30000 bytes") == 3
    assert "secret of site" not in result.stdout + result.stderr


@pytest.mark.slow
def test_check_says_what_is_wrong_with_logins(make):
    region = make()[1]
    (region.directory / "site-cloud-a.password").chmod(0o644)
    result = run_veilmq("check", "-c", "site.yaml", cwd=region.directory)
    assert result.returncode == 2
    assert "cloud-a" in result.stderr
    assert "chmod 600" in result.stderr
    region.edit("site", hosted={"cloud-x": {"username": "site"}})
    result = run_veilmq("broker", "-c", "site.yaml", cwd=region.directory)
    assert result.returncode == 2
    assert "cloud-x is no hosted broker of our region; known are cloud-a, cloud-b, cloud-c" in result.stderr


@pytest.mark.slow
def test_three_providers_as_the_manual_says(tmp_path: Path):
    """The commands of docs/how-to/hosted-brokers.md, on ports of our own; the Mosquittos are started and ended here."""
    shutil.copytree(ROOT / "configs" / "hosted", tmp_path, dirs_exist_ok=True)
    manual = (ROOT / "docs" / "how-to" / "hosted-brokers.md").read_text("utf-8")
    blocks = re.findall(r"^```(?:sh)?\n(.*?)^```", manual, re.DOTALL | re.MULTILINE)
    block = next(block for block in blocks if "mosquitto_passwd" in block)
    ports = dict(zip(("8801", "8802", "8803", "1883"), map(str, free_ports(4)), strict=True))

    def ours(text: str) -> str:
        return re.sub("880[123]|1883", lambda found: ports[found[0]], text)

    for path in tmp_path.glob("*.yaml"):
        path.write_text(ours(path.read_text()))
    before, after = re.split(r"for x in a b c; do mosquitto -d .*\n", ours(block))
    commands, last = after.strip().rsplit("\n", 1)
    assert last == "veilmq broker -c gateway.yaml"
    veilmq = f"""veilmq() {{ {sys.executable} -c 'from gateway.cli import main; main()' "$@"; }}\n"""

    def run(script: str) -> str:
        bash = ["bash", "-ec", veilmq + script]
        result = subprocess.run(bash, cwd=tmp_path, env=ENVIRONMENT, capture_output=True, text=True, check=False)
        assert result.returncode == 0, result.stderr
        return result.stdout

    run(before)
    running = []
    try:
        for name in "abc":
            with (tmp_path / f"{name}.conf").open("a") as conf:
                conf.write("user root\n" if os.getuid() == 0 else "")
            running.append(subprocess.Popen([str(tool("mosquitto")), "-c", f"{name}.conf"], cwd=tmp_path))
        for port in ("8801", "8802", "8803"):
            wait_for(int(ports[port]))
        said = run(commands)
    finally:
        for process in running:
            process.kill()
            process.wait()
    assert said.count("carries retained, user properties, QoS 1") == 3
    assert "protected" in said


# -------------------------------------------------------------------------------------------------- receivers


def test_an_ingest_job_receives_from_hosted_brokers_as_from_replicas(make):
    brokers, region = make()
    brokers.start()
    region.start("site")
    assert links_up(region, "site", 3)
    device = region.client("site", "device")
    got: list[tuple[str, str]] = []

    def arrived(arrival: Arrival) -> None:
        got.append((arrival.replica, arrival.wire.topic))
        arrival.acknowledge()

    async def receive() -> None:
        client = RegionClient(
            region.directory / "job", region.directory / "overlay.json", ["open/#"], arrived,
            logins=region.directory / "job-logins.yaml",
        )  # fmt: skip
        client.start()
        await until(lambda: client.is_accepted and len(client.connected_replicas) >= 3, 20)
        device.publish("open/a", b"1", qos=1)
        await until(lambda: len(got) >= 3, 20)
        await client.close()

    asyncio.run(receive())
    assert sorted(got) == [(name, "veilmq/batch/2") for name in sorted(THREE)]
