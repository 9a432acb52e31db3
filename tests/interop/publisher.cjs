// Publishers of numbers with MQTT.js, a session each, until standard input ends. It ends when all is acknowledged, and
// prints the count of each session as JSON. A SESSION is MQTT version, QoS and clean session, as 4-2-0.
//     node publisher.cjs FOLDER PORT PREFIX SIZE PACE SESSION…
"use strict";
const [folder, port, prefix, size, pace, ...said] = process.argv.slice(2);
const mqtt = require(folder);
const PACE_MS = Number(pace);

let ended = false;
let unfinished = said.length;
const counts = {};

function run(word) {
  const [version, qos, clean] = word.split("-").map(Number);
  const client = mqtt.connect(`mqtt://127.0.0.1:${port}`, {
    clientId: `mqttjs-${word}`,
    protocolVersion: version,
    clean: clean === 1,
    properties: version === 5 ? { sessionExpiryInterval: clean ? 0 : 3600 } : undefined,
  });
  client.on("error", () => {});
  let published = 0;
  let answered = 0;
  function finish() {
    if (!ended || answered !== published) return;
    counts[word] = published;
    client.end(true, () => --unfinished || console.log(JSON.stringify(counts)));
  }
  // An error is a refusal, or a connection that closed while MQTT.js repeated older ones: the number is published
  // again. 0x92 is none: PUBCOMP says so when PUBREL comes twice. Not within the callback: MQTT.js walks through the list of those behind a repetition while it calls back,
  // and would never reach the end of a list that grows.
  function publish(number) {
    client.publish(`${prefix}/mqttjs/${word}`, String(number).padEnd(Number(size)), { qos }, (error) => {
      if (error && error.code !== 0x92) return setTimeout(publish, PACE_MS, number);
      answered++;
      finish();
    });
  }
  const timer = setInterval(() => {
    if (!ended) return publish(published++);
    clearInterval(timer);
    finish();
  }, PACE_MS);
}

process.stdin.resume();
process.stdin.on("end", () => (ended = true));
said.forEach(run);
