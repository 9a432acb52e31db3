// The script of exchange.py over MQTT.js: node exchange.cjs mqttjs PUBLISHER_PORT SUBSCRIBER_PORT
"use strict";
const mqtt = require("mqtt");
const [toPort, fromPort] = process.argv.slice(3).map(Number);
const pause = (ms) => new Promise((done) => setTimeout(done, ms));

async function open(port, clientId, clean = true) {
  const got = [];
  const client = mqtt.connect(`mqtt://127.0.0.1:${port}`, { clientId, clean, reconnectPeriod: 0 });
  client.on("message", (topic, payload, packet) => got.push([payload.toString(), packet.qos]));
  await new Promise((done, failed) => client.once("connect", done).once("error", failed));
  return { client, got };
}

async function wait(one, payload, seconds = 10) {
  for (const end = Date.now() + seconds * 1000; Date.now() < end; await pause(20)) {
    const found = one.got.find((message) => message[0] === payload);
    if (found) return found;
  }
  return null;
}

async function main() {
  const answers = {};
  let reader = await open(fromPort, "peer-reader", false);
  const writer = await open(toPort, "peer-writer");
  await reader.client.subscribeAsync("plant/peer/#", { qos: 2 });
  answers.connects = "yes";
  const found = [];
  for (const qos of [0, 1, 2]) {
    await writer.client.publishAsync("plant/peer/qos", `qos ${qos}`, { qos });
    const came = await wait(reader, `qos ${qos}`);
    if (came) found.push(came[1] === qos ? `${qos}` : `${qos} as ${came[1]}`);
  }
  answers.QoS = found.join(", ");
  const large = "L".repeat(100000);
  await writer.client.publishAsync("plant/peer/large", large, { qos: 1 });
  answers["100 kB"] = (await wait(reader, large)) ? "yes" : "no";
  await writer.client.publishAsync("plant/peer/state", "on", { qos: 1, retain: true });
  const later = await open(fromPort, "peer-later");
  await later.client.subscribeAsync("plant/peer/state", { qos: 1 });
  answers.retained = (await wait(later, "on")) ? "yes" : "no";
  await reader.client.endAsync();
  await pause(500);
  await writer.client.publishAsync("plant/peer/away", "away", { qos: 1 });
  await pause(500);
  reader = await open(fromPort, "peer-reader", false);
  answers.queue = (await wait(reader, "away", 5)) ? "yes" : "no";
  console.log(JSON.stringify(answers));
  process.exit(0);
}

main().catch((error) => { console.log(JSON.stringify({ connects: String(error) })); process.exit(0); });
