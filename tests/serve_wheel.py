"""`make wheel`: the wheel, installed without extras into a clean environment, serves an ordinary client.

python -m tests.serve_wheel dist/veilmq-*.whl
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
import venv
from pathlib import Path

from tests.ports import free_ports

CLIENT = """
import sys, time
import paho.mqtt.client as paho
got = []
client = paho.Client(paho.CallbackAPIVersion.VERSION2)
client.on_message = lambda client, data, message: got.append(message.payload)
for _ in range(100):
    try:
        client.connect("127.0.0.1", int(sys.argv[1]))
        break
    except OSError:
        time.sleep(0.1)
client.subscribe("a", 1)
client.loop_start()
end = time.monotonic() + 20
while not got and time.monotonic() < end:
    client.publish("a", "served", 1)
    time.sleep(0.2)
print(got[0].decode())
"""


def main(wheel: Path) -> int:
    (port,) = free_ports(1)
    with tempfile.TemporaryDirectory() as directory:
        place = Path(directory) / "clean"
        venv.create(place, with_pip=True)
        python, veilmq = place / "bin" / "python", place / "bin" / "veilmq"
        pip = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", wheel.resolve()]
        subprocess.run(pip, check=True)
        subprocess.run([veilmq, "--version"], check=True, cwd=directory)
        subprocess.run([veilmq, "init", Path(directory) / "site"], check=True, cwd=directory, stdout=subprocess.DEVNULL)
        broker = subprocess.Popen(
            [veilmq, "broker", "--bind", f"127.0.0.1:{port}", "--allow-anonymous"],
            cwd=directory, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        try:
            time.sleep(1)
            said = subprocess.run(
                [python, "-c", CLIENT, str(port)], check=True, capture_output=True, text=True, cwd=directory
            )
        finally:
            broker.terminate()
            broker.wait(20)
    print(f"{wheel.name}: {said.stdout.strip()}")
    return 0 if said.stdout.strip() == "served" and broker.returncode == 0 else 1


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
