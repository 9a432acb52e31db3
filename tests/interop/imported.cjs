// Drives MQTT.js against a broker that took over a mosquitto.conf: node imported.cjs TLS_PORT WS_PORT CAFILE.
// Prints what it saw as one JSON object.
"use strict";
const { createRequire } = require("module");
const { readFileSync } = require("fs");
const mqtt = createRequire(process.cwd() + "/")("mqtt");
const [tls, ws, cafile] = process.argv.slice(2);

const open = (url, username, password, more = {}) =>
  mqtt.connectAsync(url, { username, password, reconnectPeriod: 0, ca: readFileSync(cafile), ...more });

async function main() {
  const seen = {};
  const ann = await open(`mqtts://localhost:${tls}`, "ann", "pw-ann", { protocolVersion: 5 });
  const bob = await open(`ws://localhost:${ws}`, "bob", "pw-bob", { protocolVersion: 4 });
  const got = [];
  const done = new Promise((resolve) => bob.on("message", (topic, payload, packet) => {
    got.push([topic, payload.toString(), packet.retain]);
    if (payload.toString() === "last") resolve();
  }));
  await bob.subscribeAsync("plant/public/#", { qos: 1 });
  await bob.publishAsync("plant/public/sign", "forged", { qos: 1, retain: true });
  await ann.publishAsync("plant/secret", "hidden", { qos: 1 });
  await ann.publishAsync("plant/public/sign", "last", { qos: 1 });
  await done;
  seen.bob = got;
  seen.refused = await open(`mqtts://localhost:${tls}`, "ann", "wrong").then(() => false, (error) => error.code);
  seen.anonymous = await open(`mqtts://localhost:${tls}`).then(() => false, (error) => error.code);
  await ann.endAsync();
  await bob.endAsync();
  console.log(JSON.stringify(seen));
}

main().catch((error) => { console.error(error); process.exit(1); });
