// The script of exchange.py over Node-RED's own MQTT nodes: node nodered.cjs nodered PUBLISHER_PORT SUBSCRIBER_PORT
"use strict";
const fs = require("fs"), os = require("os"), path = require("path");
const RED = require("node-red");
const [toPort, fromPort] = process.argv.slice(3).map(Number);
const pause = (ms) => new Promise((done) => setTimeout(done, ms));

const broker = (id, port, more = {}) => ({
  id, type: "mqtt-broker", name: "", broker: "127.0.0.1", port: `${port}`, clientid: `peer-${id}`, autoConnect: true,
  usetls: false, protocolVersion: "5", keepalive: "60", cleansession: true, birthTopic: "", closeTopic: "", willTopic: "",
  sessionExpiry: "", userProps: "", ...more,
});
const reading = (id, of) => ({
  id, type: "mqtt in", z: "tab", name: "", topic: "plant/peer/#", qos: "2", datatype: "buffer", broker: of, nl: false,
  rap: true, rh: 0, inputs: 0, wires: [["sink"]],
});
const writing = (id, of) => ({
  id, type: "mqtt out", z: "tab", name: "", topic: "", qos: "", retain: "", broker: of, wires: [],
});
const flows = [
  { id: "tab", type: "tab", label: "peer" },
  broker("to", toPort),
  broker("from", fromPort, { cleansession: false, sessionExpiry: "1000" }),
  broker("late", fromPort, { autoConnect: false }),
  writing("out", "to"),
  writing("out-from", "from"),
  writing("out-late", "late"),
  reading("in", "from"),
  reading("later", "late"),
  { id: "sink", type: "junction", z: "tab", wires: [[]] },
];
const got = [];

async function wait(of, payload, seconds = 10) {
  for (const end = Date.now() + seconds * 1000; Date.now() < end; await pause(20)) {
    const found = got.find((one) => one.of === of && one.payload === payload);
    if (found) return found;
  }
  return null;
}

async function up(id, seconds = 20) {
  for (const end = Date.now() + seconds * 1000; Date.now() < end; await pause(20)) {
    const node = RED.nodes.getNode(id);
    if (node && node.connected) return;
  }
  throw new Error(`${id} does not connect`);
}

async function main() {
  const userDir = fs.mkdtempSync(path.join(os.tmpdir(), "node-red-"));
  fs.writeFileSync(path.join(userDir, "flows.json"), JSON.stringify(flows));
  RED.init({
    userDir, flowFile: "flows.json", httpAdminRoot: false, httpNodeRoot: false, credentialSecret: false,
    logging: { console: { level: "off" } }, telemetry: { enabled: false },
  });
  RED.hooks.add("onSend", (sent) => {
    for (const { source, msg } of sent) {
      if (Buffer.isBuffer(msg.payload)) {
        got.push({ of: source.id, payload: msg.payload.toString(), qos: msg.qos, retain: msg.retain });
      }
    }
  });
  await RED.start();
  await up("to");
  await up("from");
  const publish = (topic, payload, qos = 1, retain = false) =>
    RED.nodes.getNode("out").receive({ topic: `plant/peer/${topic}`, payload, qos, retain });
  const answers = { connects: "no" };
  // Its nodes do not tell when they are subscribed, so the first message is said until it comes.
  for (let tries = 0; tries < 50 && !(await wait("in", "up", 0.2)); tries++) publish("up", "up", 0);
  if (await wait("in", "up", 1)) answers.connects = "yes";
  const found = [];
  for (const qos of [0, 1, 2]) {
    publish("qos", `qos ${qos}`, qos);
    const came = await wait("in", `qos ${qos}`);
    if (came) found.push(came.qos === qos ? `${qos}` : `${qos} as ${came.qos}`);
  }
  answers.QoS = found.join(", ");
  const large = "L".repeat(100000);
  publish("large", large);
  answers["100 kB"] = (await wait("in", large)) ? "yes" : "no";
  publish("state", "on", 1, true);
  await wait("in", "on");
  RED.nodes.getNode("out-late").receive({ action: "connect" });
  const kept = await wait("later", "on");
  answers.retained = kept ? (kept.retain ? "yes" : "without RETAIN") : "no";
  RED.nodes.getNode("out-from").receive({ action: "disconnect" });
  await pause(1000);
  publish("away", "away");
  await pause(500);
  RED.nodes.getNode("out-from").receive({ action: "connect" });
  answers.queue = (await wait("in", "away")) ? "yes" : "no";
  fs.rmSync(userDir, { recursive: true, force: true });
  console.log(JSON.stringify(answers));
  process.exit(0);
}

main().catch((error) => { console.log(JSON.stringify({ connects: String(error) })); process.exit(0); });
