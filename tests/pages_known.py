"""What each page of the manual takes for granted when it is run (`pages.py`), and the pages that are not run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Recipe:
    """How one page is run. Commands are named by their beginning, as the page writes them.

    `installs`: what the page installs goes into a machine of its own; CHECKOUT is this checkout and PORT a free port
    there. `begin`: what a reader has done before. `runs`: what runs meanwhile, each with the condition that it is
    there. `files`: by language of a block, the files that its blocks are, in order; "" for a block that is none, + at
    the end for one that goes behind what the file has. `swap`: words of the page that stand for something of the
    reader's. `goes_on`: commands that run until the page ends. `stops`: commands that are ended with Ctrl-C once they
    are seen. `refused`: commands that the page shows as mistakes, with what they say. `ends`: other exit statuses than
    0. `waits`: what has to be seen after a command, as a condition of the shell. `after`: what the text asks for after
    a command or file, as commands. `left`: commands that are not run, with the reason. `typed`: what is typed where a
    command asks.
    """

    installs: bool = False
    begin: str = ""
    runs: Mapping[str, str] = field(default_factory=dict)
    files: Mapping[str, Sequence[str]] = field(default_factory=dict)
    swap: Mapping[str, str] = field(default_factory=dict)
    goes_on: Sequence[str] = ()
    stops: Sequence[str] = ()
    refused: Mapping[str, str] = field(default_factory=dict)
    ends: Mapping[str, int] = field(default_factory=dict)
    waits: Mapping[str, str] = field(default_factory=dict)
    after: Mapping[str, Sequence[str]] = field(default_factory=dict)
    left: Mapping[str, str] = field(default_factory=dict)
    typed: str = "a-good-password\na-good-password\n"


OVERLAY = "veilmq init made\nmv made/* .\n"
"""An overlay of three replicas and two gateways in this folder."""
LATER_MEMBER = """
veilmq trust issue owner --name spark --role ingest --out spark
printf -- '- card: spark/card.json\\n  region: region1\\n' >> overlay.yaml
veilmq overlay sign overlay.yaml --owner owner --out overlay.json
"""
JOB = LATER_MEMBER.replace("region1", "region1\\n  read: [plant/#]")
"""A job that may read, and whose identity is in `spark`."""
KEY_SERVERS = """
printf 'key_service:\\n  issuer: threshold\\n  servers:\\n' >> overlay.yaml
for n in 1 2 3 4; do
  veilmq trust init k$n-domain --domain keys-$n
  veilmq trust issue k$n-domain --name k$n --role keyserver --host 127.0.0.1 --out k$n
  printf -- "  - {card: k$n/card.json, address: '127.0.0.1:889$n'}\\n" >> overlay.yaml
done
"""
EDGE = "printf 'listeners: {default: {bind: 127.0.0.1:1883}}\\nallow_anonymous: true\\ndata: data\\n' > gateway.yaml\n"
SOFTHSM = "SOFTHSM2_CONF=softhsm2.conf"
TOKEN = f"""
mkdir tokens
printf "directories.tokendir = $PWD/tokens\\nobjectstore.backend = file\\n" > softhsm2.conf
{SOFTHSM} softhsm2-util --init-token --free --label plant --pin 2468 --so-pin 13579
"""
LISTENS = "printf '' > /dev/tcp/127.0.0.1/1883"
SERVES = (
    "for i in $(seq 100); do mosquitto_pub -p $PORT -q 1 -t here/a -m 1 && break; sleep 0.3; done; "
    "mosquitto_pub -p $PORT -q 1 -t here/a -m 1"
)
"""A client gets its PUBACK before long."""
SEEN = "veilmq traces list --history seen.sqlite3"
ALL_WELL = "grep -q 'well: all 5 members' .output*"
ALL_HAVE_IT = (
    "veilmq status --overlay plant/overlay.json --json | python -c 'import json, sys, pathlib; "
    "from gateway.trust import load_overlay; "
    'v = load_overlay(pathlib.Path("plant/overlay.json"), 0).policy.version; '
    'sys.exit(sum(one["version"] == v for one in json.load(sys.stdin)["members"].values()) < 5)\''
)
"""Five members have the version that the owner signed last."""
SCHEMAS = """
printf '{"type": "object", "properties": {"temperature": {"type": "number"}, "humidity": {"type": "number"}}}' \\
  > climate.json
printf 'syntax = "proto3";\\nmessage Motor { double speed = 1; }\\n' > motors.proto
printf 'climate: {topic: plant/+/climate, schema: climate.json}\\n' > schemas.yaml
printf 'motors: {topic: plant/+/motor/#, schema: "motors.proto#Motor"}\\n' >> schemas.yaml
"""
"""Schemas of the page on Spark, and the file that names them."""
SPARK = (
    "cat > page.py <<'P'\nfrom spark_ingest import register, spark_session\n\n"
    'spark = spark_session("page")\nregister(spark)\n'
    'options = {"spool": "sample/spool", "grants": "sample/scope_keys.json"}\n'
    'rows = spark.readStream.format("veilmq").options(**options).load()\nP\n'
)
"""Python of the page: a session, and rows of a sealed spool."""
TO_THE_END = {".awaitTermination()": ".processAllAvailable()"}
"""A query that goes on ends when all rows are through."""
RECIPES: dict[str, Recipe] = {
    "how-to/client.md": Recipe(
        waits={"veilmq broker": LISTENS, "veilmq sub 'plant/#' &": "sleep 1"},
        refused={"veilmq pub 'plant/#' 61": "topic name contains a wildcard; correct it"},
    ),
    "how-to/install.md": Recipe(
        installs=True,
        begin='git clone --quiet --depth 1 "file://$CHECKOUT" here\nmv here/* here/.dockerignore here/.git* .',
        swap={"veilmq init plant": "veilmq init plant --port $PORT"},
        after={
            "ln -s": [  # one way to install after the other
                "test $(readlink -f $(command -v veilmq)) = /opt/veilmq/bin/veilmq",
                "mv /opt/veilmq /opt/kept",
                "rm /usr/local/bin/veilmq",
            ],
            "dpkg -i": [
                "veilmq --version",
                "id veilmq",
                "id veilmq-owner",
                "dpkg --verify veilmq",
                "man --where veilmq",
                "test -d /etc/veilmq -a -f /lib/systemd/system/veilmq@.service",
                "systemd-analyze verify --man=no /lib/systemd/system/veilmq@g1.service",
                "veilmq init packed --port $PORT",
                "cp -r packed/g1 /etc/veilmq/packed",
                "chown -R veilmq:veilmq /etc/veilmq/packed",
                "systemctl start veilmq@packed",
                SERVES,
                "dpkg -P veilmq",
                "! systemctl is-active veilmq@packed",
                "! test -e /opt/veilmq -o -e /usr/bin/veilmq -o -e /lib/systemd/system/veilmq@.service",
                "test -d /etc/veilmq/packed/identity -a -d /var/lib/veilmq/packed",
                "mv /opt/kept /opt/veilmq",
                "ln -s /opt/veilmq/bin/veilmq /usr/local/bin/veilmq",
            ],
            "systemctl status": [
                SERVES,
                "test $(stat -c %U:%a /var/lib/veilmq/g1) = veilmq:700",
                "systemctl reload veilmq@g1",
                SERVES,
                "systemctl start veilmq-renew@g1.service",
                "systemctl restart veilmq@g1",
                SERVES,
                "echo 'nonsense: 1' >> /etc/veilmq/g1/broker.yaml",
                "systemctl restart veilmq@g1",
                "until systemctl is-failed veilmq@g1; do sleep 0.3; done",
                "sleep 5; systemctl is-failed veilmq@g1",
                "systemctl show veilmq@g1 | grep -x NRestarts=0",
                "journalctl -u veilmq@g1 | grep nonsense",
            ],
            "rm -r": ["! command -v veilmq"],
        },
        waits={"systemctl enable": "systemctl is-active veilmq@g1"},
        left={
            "podman": "needs the official base image; `tests/test_container.py` builds on another one",
            "SITE=": "the same",
        },
    ),
    "how-to/spark.md": Recipe(
        begin=OVERLAY + JOB + SCHEMAS + SPARK + "cp page.py later.py\n"
        "sed 's/^rows.*//; s/^options.*//' page.py > driver.py\nmv page.py sixth.py\ncp sixth.py jobs.py\n"
        "echo 'from spark_ingest import spark_session' > quick.py\n"
        "printf 'spool: spool\\nidentity: spark\\noverlay: overlay.json\\nschemas: schemas.yaml\\n' > receiver.yaml\n",
        runs={"veilmq up .": ALL_WELL},
        files={
            "python": [
                "five.py",
                "driver.py+",
                "later.py+",
                "later.py+",
                "later.py+",
                "sixth.py+",
                "jobs.py+",
                "",
                "later.py+",
                "quick.py+",
                "",
            ],
        },
        swap={
            **TO_THE_END,
            "/etc/veilmq/job": "spark",
            "/etc/veilmq/": "",
            "/var/spool/veilmq": "spool",
            "/var/lib/plant/": "out/",
            "/etc/plant/": "",
            "/srv/": "srv/",
            "/tmp/sample": "sample",
            "SPOOL": "spool",
            " scope_keys.json": " spark/scope_keys.json",
            "--metrics 127.0.0.1:9464 --metrics 127.0.0.1:9465 --metrics 127.0.0.1:9466": "--metrics 127.0.0.1:9464",
        },
        after={
            "five.py": ["python five.py | grep 'Batch: 0'"],
            "driver.py": ["python driver.py", "test -d out/rows -a -s spark/scope_keys.json"],
            "veilmq ingest run --config /etc/veilmq/receiver.yaml --metrics": [
                "until test -e spool/schemas.json && curl -fs 127.0.0.1:9464/metrics >received; do sleep 0.3; done",
                "grep veilmq_ingest_receiving received",
                'veilmq pub plant/press-4/climate \'{"temperature": 21.5, "humidity": 40}\'',
                "until veilmq ingest status spool | grep -E ' [1-9][0-9,]* sealed batches'; do sleep 0.5; done",
                "python sixth.py",
            ],
            "jobs.py": ["python jobs.py"],
            "quick.py": ["python quick.py", "python later.py"],
        },
        goes_on=["veilmq ingest dashboard"],
        stops=["veilmq ingest run"],
        waits={
            "veilmq ingest run --config /etc/veilmq/receiver.yaml --workers": "veilmq ingest status spool | grep w2of2",
            "veilmq ingest dashboard": "curl -fs 127.0.0.1:8090/",
        },
        refused={"veilmq ingest consumers SPOOL --forget NAME": "NAME reads nothing from spool"},
    ),
    "how-to/spark-clusters.md": Recipe(
        begin=OVERLAY + JOB + "printf 'spool: spool\\nidentity: spark\\noverlay: overlay.json\\n' > plant.yaml\n",
        runs={"veilmq up .": ALL_WELL},
        swap={
            "/etc/veilmq/job": "spark",
            "/etc/veilmq/reader": "reader",
            "cd /etc/veilmq": "cd .",
            "/var/spool/veilmq": "spool",
        },
        goes_on=["veilmq ingest run", "veilmq ingest serve"],
        waits={
            "veilmq ingest run": "test -s spark/scope_keys.json",
            "veilmq ingest serve": LISTENS.replace("1883", "9470"),
        },
        left={
            "spark-submit": "tests/spark_ingest/test_clusters.py has a cluster, test_recipes.py looks each option up",
            "kubectl": "there is no Kubernetes here",
        },
    ),
    "how-to/spark-sinks.md": Recipe(
        begin="veilmq ingest sample sample\n" + SPARK,
        files={"python": ["page.py+", "parquet.py", "page.py+", "", "page.py+", "end.py"]},
        swap={
            **TO_THE_END,
            "/srv/": "srv/",
            '"type": "rest", "uri": "https://catalog.plant:8181"': '"type": "sql", "uri": "sqlite:///catalog.db", '
            '"warehouse": "file://" + __import__("os").getcwd()',
        },
        after={
            "end.py": [
                "cat end.py - >> page.py <<'P'\n"
                "from spark_ingest.sinks.parquet import ParquetSink\n"
                "for number, sink in enumerate([IcebergSink('plant.telemetry', 'plant', properties=catalog), "
                "SqliteSink('rows.db'), to_delta('srv/other', 'plant'), ParquetSink('srv/rows', 'plant')]):\n"
                "    to = rows.writeStream.foreachBatch(sink).option('checkpointLocation', f'srv/checkpoint{number}')\n"
                "    to.start().processAllAvailable()\n"
                "P",
                "python page.py",
                "python parquet.py",
                "python -c \"import sqlite3; assert sqlite3.connect('rows.db').execute("
                "'SELECT count(*) FROM telemetry').fetchone()[0] > 100\"",
                'python -c "from deltalake import DeltaTable as Table; assert [Table(name).to_pyarrow_table().num_rows '
                "for name in ('srv/delta', 'srv/other')] > [100, 100]\"",
            ]
        },
    ),
    "how-to/rights.md": Recipe(
        begin=OVERLAY + LATER_MEMBER,
        swap={
            "public/#": "plant/#",
            "rotate g1": "rotate g1/identity",
            "g1/next": "g1/identity/next",
            "--domain owner": "--domain g1/domain",
            "ward/7/pulse": "plant/7/pulse",
            "check -c gateway.yaml": "check -c g1/broker.yaml",
        },
    ),
    "how-to/tokens.md": Recipe(
        begin=TOKEN, swap={"pkcs11-tool": f"{SOFTHSM} pkcs11-tool", "veilmq": f"{SOFTHSM} veilmq"}
    ),
    "how-to/backup.md": Recipe(begin=OVERLAY, swap={"restore g1.tar.gz g1": "restore g1.tar.gz again"}),
    "how-to/telemetry.md": Recipe(
        begin=EDGE, runs={"veilmq broker -c gateway.yaml": LISTENS}, files={"yaml": ["gateway.yaml+"]}
    ),
    "how-to/console.md": Recipe(
        begin=EDGE + "mkdir -m 700 data",
        files={"yaml": ["gateway.yaml+"]},
        left={"curl": "TOKEN stands for one that was issued", "veilmq tokens revoke": "the id is an example"},
    ),
    "how-to/company-login.md": Recipe(
        begin=EDGE + "mkdir -m 700 data",
        files={"yaml": ["gateway.yaml+"]},
        left={"mosquitto_pub": "a token of a provider; tests/interop has a real one"},
    ),
    "how-to/history.md": Recipe(
        begin=OVERLAY + "sed -i 's|^- filter: plant/#|&\\n  history: {days: 7, gigabytes: 1}|' overlay.yaml",
        goes_on=["mosquitto_sub"],
        after={"veilmq overlay sign": ["veilmq up . &"]},
        waits={"veilmq overlay sign": ALL_WELL},
        ends={"veilmq overlay history": 1},  # nothing was published
        left={"veilmq ingest backfill": "the overlay has no job; tests/spark_ingest/test_backfill_live.py has one"},
    ),
    "how-to/upgrade.md": Recipe(
        begin=OVERLAY, swap={"DIR --domain DOMAIN": "g1/identity --domain g1/domain", "OWNER": "owner"}
    ),
    "how-to/evidence.md": Recipe(
        begin=OVERLAY
        + "cp -r owner twice\ncp overlay.json theirs.json\nveilmq overlay sign overlay.yaml --owner owner "
        + "--out overlay.json\nmv overlay.json mine.json\n"
        + "veilmq overlay sign overlay.yaml --owner twice --out theirs.json\n",
        ends={"veilmq overlay compare": 1},
    ),
    "how-to/receipts.md": Recipe(
        begin=OVERLAY + "sed -i 's|^- filter: plant/#|&\\n  receipts: true|' overlay.yaml",
        goes_on=["veilmq sub"],
        after={
            "veilmq overlay sign": ["veilmq up . &"],
            "veilmq sub 'plant/#'": ["sleep 5"],
            "veilmq pub": ["until grep -q order-7 .output* || grep -q acknowledged_ms .output*; do sleep 0.2; done"],
        },
        waits={"veilmq overlay sign": ALL_WELL},
        swap={
            "prove 1839089796770816": "prove $(veilmq receipts plant/valve -c g1/broker.yaml --json"
            " | grep -m 1 -o '\"number\": [0-9]*' | grep -o '[0-9]*')"
        },
    ),
    "how-to/operate.md": Recipe(
        begin="veilmq init site",
        swap={"-c FILE": "-c site/g1/broker.yaml", "[TOPIC...]": "plant/line1/temp", "--seconds 60": "--seconds 2"},
        after={"veilmq check": ["veilmq up site &"]},
        waits={"veilmq check": ALL_WELL},
        ends={"veilmq log trace -c FILE": 1},
        goes_on=["veilmq log trace --overlay"],
    ),
    "how-to/amqtt.md": Recipe(
        begin=OVERLAY + "cp -r g1/. .; mv broker.yaml gateway.yaml; mkdir configs\n"
        'cp "$PYTHONPATH"/configs/amqtt.yaml configs; sed "/GatewayPlugin/,$ d" configs/amqtt.yaml > amqtt.yaml',
        stops=["veilmq broker"],
        goes_on=["amqtt"],
        waits={"veilmq broker": LISTENS, "amqtt": LISTENS},
    ),
    "how-to/devices.md": Recipe(
        begin='cp "$PYTHONPATH"/configs/traces.yaml .',
        files={"yaml": ["", "", "", ""], "python": ["pump.py", ""]},
        swap={"    ...\n": "    __import__('time').sleep(600)\n"},
        stops=[
            "veilmq traces watch pump-7 --credentials desk --history",
            "veilmq traces watch shop:plug-1",
            "veilmq traces watch 'shop:*'",
        ],
        after={
            "veilmq check": ["veilmq broker -c traces.yaml &", f"until {LISTENS}; do sleep 0.2; done"],
            "pump.py": ["python pump.py &", "until grep -q client=pump-7 .output*; do sleep 0.2; done"],
        },
        waits={
            "veilmq traces watch pump-7 --credentials desk --history": f"{SEEN} pump-7 | grep -q alive",
            "veilmq traces watch shop:plug-1": "sleep 5",
            "veilmq traces watch 'shop:*'": f"{SEEN} 'shop:*' | grep -q alive",
        },
        left={"veilmq traces watch pump-7 --credentials desk --gateway": "names three hosts of others"},
    ),
    "how-to/fleet.md": Recipe(
        files={"yaml": ["gateway.yaml"]},
        swap={
            "cp configs/overlay.yaml": 'cp "$PYTHONPATH/configs/overlay.yaml"',
            " configs/gateway.yaml .": ' "$PYTHONPATH/configs/gateway.yaml" .',
        },
        stops=["veilmq broker"],
        after={
            "veilmq join": ["rm -r r1"],
            "veilmq trust issue owner --name broker": ["echo a-good-password | veilmq passwd passwords nurse"],
        },
        waits={"veilmq broker": LISTENS.replace("1883", "8883")},
    ),
    "how-to/hosted-brokers.md": Recipe(
        begin='cp "$PYTHONPATH"/configs/hosted/* .',
        swap={'"password_file a.users"': '"password_file a.users" "user root"'},
        stops=["veilmq broker"],
        waits={"veilmq broker": LISTENS},
    ),
    "how-to/key-service.md": Recipe(
        begin=OVERLAY + KEY_SERVERS,
        after={
            "veilmq trust rekey": [
                "test -s keyserver/k4.material",
                'cp "$PYTHONPATH"/configs/keyserver.yaml k1.yaml',
                "veilmq check -c k1.yaml",
                "veilmq broker -c k1.yaml &",
                "while test -e keyserver/k1.material; do sleep 0.2; done",
            ]
        },
    ),
    "how-to/mosquitto.md": Recipe(
        begin="printf 'listener 1883 127.0.0.1\\nallow_anonymous true\\n' > mosquitto.conf",
        files={"yaml": ["", ""]},
        swap={"/etc/mosquitto/mosquitto.conf": "mosquitto.conf", "-c broker.yaml": "-c ours/broker.yaml"},
        stops=["veilmq broker"],
        waits={"veilmq broker": LISTENS},
        refused={"veilmq bridges forget": "NAME"},
    ),
    "how-to/replicas.md": Recipe(
        begin=OVERLAY + 'cp "$PYTHONPATH"/configs/place.yaml .',
        swap={
            "west": "region1",
            "r1b": "r2",
            "r1d-card.json": "r1d/identity/card.json",
            "g3-card.json": "g3/identity/card.json",
        },
        refused={"veilmq overlay detach": "has 0 of 2 endorsements here; give the overlay file to its replicas"},
        left={
            "veilmq overlay place overlay.json --live": "asks hosts of others for what they measured in days",
            "veilmq overlay organise": "the same",
        },
    ),
    "tutorial.md": Recipe(  # but for rows.py, which starts Spark
        files={"yaml": ["plant/overlay.yaml+"], "python": ["", "rows.py"]},
        stops=["veilmq broker"],
        left={"make demo": "tests/gateway/demo and tests/spark_ingest/test_demo.py run it"},
        goes_on=["veilmq up", "veilmq sub", "veilmq ingest run"],
        waits={
            "veilmq broker": LISTENS,
            "veilmq up": ALL_WELL,
            "veilmq pub plant/press-4/temp 61": "grep -q 'plant/press-4/temp 61' .output*",
            "veilmq overlay sign": ALL_HAVE_IT,
            "veilmq sub -p 1884 '$since": "grep -q 'plant/press-4/temp 65' $(ls -t .output* | head -1)",
            "veilmq ingest run": "grep -q receiver_subscribed .output*",
        },
        after={
            "veilmq sub": ["sleep 2"],
            "veilmq ingest run": ["veilmq pub plant/press-4/temp 63"],
            "veilmq trust revoke": [
                "veilmq pub plant/press-4/temp 64",
                "until grep -q 'plant/press-4/temp 64' .output*; do sleep 0.2; done",
            ],
        },
    ),
    "README.md": Recipe(
        stops=["veilmq broker"],
        goes_on=["veilmq up"],
        swap={
            "overlay.json": "plant/overlay.json",
            "overlay.yaml": "plant/overlay.yaml",
            "owner owner": "owner plant/owner",
        },
        waits={"veilmq broker": LISTENS, "veilmq up": ALL_WELL},
        after={
            "veilmq init": [
                "veilmq trust issue plant/owner --name lab --role gateway --out plant/lab",
                "printf -- '- card: lab/card.json\\n  region: region1\\n' >> plant/overlay.yaml",
            ]
        },
        left={
            "make": "tests/spark_ingest/test_demo.py runs the demo",
            "veilmq traces watch": "nobody is traced in this overlay; how-to/devices.md has it",
        },
    ),
}
"""Pages that are run here."""
ELSEWHERE = {
    "how-to/testing.md": "tests/gateway/test_testing.py",
    "how-to/first-minutes.md": "tests/gateway/test_first_minutes.py",
    "how-to/tls.md": "tests/gateway/test_tls_page.py",
}
"""Pages whose commands another test runs as written."""
NOT_YET: dict[str, str] = {}
"""Pages that are not run, with the reason. It may only shrink."""
