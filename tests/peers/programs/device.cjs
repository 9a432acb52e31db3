// One Sparkplug node over sparkplug-client: node device.cjs sparkplug PORT
"use strict";
const client = require("sparkplug-client").newClient({
  serverUrl: `mqtt://127.0.0.1:${process.argv[3]}`, username: "", password: "", groupId: "plant", edgeNode: "node",
  clientId: "sparkplug-js", version: "spBv1.0",
});
client.on("birth", () => client.publishNodeBirth({
  timestamp: Date.now(), metrics: [{ name: "level", value: 1, type: "Float" }],
}));
setTimeout(() => process.exit(0), 120000);
