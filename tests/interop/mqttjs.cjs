// Drives MQTT.js against a broker: node mqttjs.cjs PORT VERSION, with node_modules in the working directory.
// Prints what it saw as one JSON object.
"use strict";
const { createRequire } = require("module");
const mqtt = createRequire(process.cwd() + "/")("mqtt");

const [port, version] = process.argv.slice(2).map(Number);

function open(name, more = {}) {
  return mqtt.connectAsync(`mqtt://127.0.0.1:${port}`, {
    protocolVersion: version,
    protocolId: version === 3 ? "MQIsdp" : "MQTT",
    clientId: name,
    reconnectPeriod: 0,
    ...more,
  });
}

function collect(client, number, topic) {
  return new Promise((resolve) => {
    const got = [];
    client.on("message", (name, payload, packet) => {
      if (name !== topic) return;
      got.push({ payload: payload.toString(), properties: packet.properties, retain: packet.retain });
      if (got.length === number) resolve(got);
    });
  });
}

async function main() {
  const seen = {};
  const sub = await open("js-sub");
  const pub = await open("js-pub");
  await sub.subscribeAsync(["order", "will"], { qos: 2 });
  const ordered = collect(sub, 30, "order");
  for (let number = 0; number < 30; number++) {
    const properties = version === 5
      ? { userProperties: { k: ["v", "w"] }, contentType: "text/plain" } : undefined;
    await pub.publishAsync("order", String(number), { qos: number % 3, properties });
  }
  const got = await ordered;
  // QoS 2 takes two round trips more, so only each level is in order.
  const numbers = got.map((each) => Number(each.payload));
  for (const qos of [0, 1, 2]) {
    const level = numbers.filter((number) => number % 3 === qos);
    if (level.some((number, place) => number !== place * 3 + qos)) throw new Error(`QoS ${qos}: ${level}`);
  }
  seen.order = numbers.sort((a, b) => a - b);
  seen.properties = got[0].properties;

  await pub.publishAsync("kept", "kept", { qos: 1, retain: true });
  const late = await open("js-late");
  const kept = collect(late, 1, "kept");
  await late.subscribeAsync("kept");
  seen.retained = (await kept)[0].payload;

  const gone = collect(sub, 1, "will");
  const broken = await open("js-broken", { will: { topic: "will", payload: Buffer.from("gone"), qos: 1 } });
  broken.stream.destroy();
  seen.will = (await gone)[0].payload;

  if (version === 5) {
    const shares = [late, sub].map((client) => collect(client, 5, "jobs"));
    for (const client of [late, sub]) await client.subscribeAsync("$share/g/jobs", { qos: 1 });
    for (let number = 0; number < 10; number++) await pub.publishAsync("jobs", String(number), { qos: 1 });
    seen.shared = (await Promise.all(shares)).map((share) => share.length);
  }
  for (const client of [sub, pub, late]) await client.endAsync();
  console.log(JSON.stringify(seen));
}

setTimeout(() => { console.error("no end after 20 s"); process.exit(1); }, 20000).unref();
main().catch((error) => { console.error(error); process.exit(1); });
