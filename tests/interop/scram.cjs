// MQTT.js logs in with SCRAM-SHA-256: node scram.cjs PORT USER PASSWORD, with node_modules in the working directory.
// Prints one JSON object: whether it was let in, with which code, and whether the server knew the password too.
"use strict";
const crypto = require("crypto");
const { createRequire } = require("module");
const mqtt = createRequire(process.cwd() + "/")("mqtt");

const [port, user, password] = process.argv.slice(2);
const method = "SCRAM-SHA-256";
const mac = (key, text) => crypto.createHmac("sha256", key).update(text).digest();
const bare = `n=${user},r=${crypto.randomBytes(18).toString("base64")}`;
let expected = "";

function prove(challenge) {
  const parts = Object.fromEntries(challenge.split(",").map((part) => [part[0], part.slice(2)]));
  const salted = crypto.pbkdf2Sync(password, Buffer.from(parts.s, "base64"), Number(parts.i), 32, "sha256");
  const withoutProof = `c=${Buffer.from("n,,").toString("base64")},r=${parts.r}`;
  const signed = `${bare},${challenge},${withoutProof}`;
  const clientKey = mac(salted, "Client Key");
  const signature = mac(crypto.createHash("sha256").update(clientKey).digest(), signed);
  expected = `v=${mac(mac(salted, "Server Key"), signed).toString("base64")}`;
  return `${withoutProof},p=${clientKey.map((byte, place) => byte ^ signature[place]).toString("base64")}`;
}

const client = mqtt.connect(`mqtt://127.0.0.1:${port}`, {
  protocolVersion: 5,
  clientId: "js",
  reconnectPeriod: 0,
  properties: { authenticationMethod: method, authenticationData: Buffer.from(`n,,${bare}`) },
});
client.handleAuth = (packet, done) => done(undefined, {
  cmd: "auth",
  reasonCode: 24,
  properties: {
    authenticationMethod: method,
    authenticationData: Buffer.from(prove(packet.properties.authenticationData.toString())),
  },
});
client.on("connect", (connack) => {
  const proof = connack.properties.authenticationData.toString();
  console.log(JSON.stringify({ in: true, code: connack.reasonCode, mutual: proof === expected }));
  client.end();
});
client.on("error", (error) => {
  console.log(JSON.stringify({ in: false, code: error.code }));
  client.end(true);
});
setTimeout(() => { console.error("no end after 15 s"); process.exit(1); }, 15000).unref();
