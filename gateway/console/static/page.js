"use strict";
// The page of a broker: asks the API every two seconds for the section that is shown. All text goes in by textContent.

const api = "/api/v1", every = 2000, kept = 120;
const $ = (id) => document.getElementById(id);
const state = { me: null, section: null, rates: [], before: null, delivered: new Map(), stream: null };
const sections = { overview: "Now", overlay: "Overlay", clients: "Clients", subscriptions: "Subscriptions",
  retained: "Retained", entities: "Entities", try: "Try topics", users: "Users", log: "Log" };

async function ask(path, method = "GET", body) {
  const options = { method, headers: {} };
  if (method !== "GET") options.headers["X-Requested-By"] = "page";
  if (body !== undefined) { options.headers["Content-Type"] = "application/json"; options.body = JSON.stringify(body); }
  const answer = await fetch(api + path, options);
  const content = await answer.json();
  if (answer.status === 401 && path !== "/login") leave();
  if (!answer.ok) throw new Error(content.error || answer.statusText);
  return content;
}

function make(tag, text, kind) {
  const element = document.createElement(tag);
  if (text !== undefined) element.textContent = text;
  if (kind) element.className = kind;
  return element;
}

function draw(tag, attributes, text) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  if (text !== undefined) element.textContent = text;
  return element;
}

function fill(id, rows) {
  const body = $(id).tBodies[0];
  body.replaceChildren(...rows.map((cells) => {
    const row = make("tr");
    for (const cell of cells) {
      if (cell instanceof Node) { const td = make("td"); td.append(cell); row.append(td); }
      else row.append(make("td", String(cell ?? ""), typeof cell === "number" ? "n" : String(cell).length > 24 ? "long" : ""));
    }
    return row;
  }));
}

function button(text, label, act) {
  const made = make("button", text);
  made.type = "button"; made.setAttribute("aria-label", label);
  made.addEventListener("click", () => attempt(act));
  return made;
}

async function attempt(act) {
  try { $("error").textContent = ""; await act(); } catch (error) { $("error").textContent = error.message; }
}

// ------------------------------------------------------------------------------------------------ sections

const show = {
  async overview() {
    const now = await ask("/overview"), status = now.status;
    level(status.level);
    const items = status.findings.map((one) => make("li", `${one.level}: ${one.text}`, one.level));
    $("findings").replaceChildren(...(items.length ? items : [make("li", "everything as it should be", "well")]));
    const tiles = { "Clients": now.clients, "Sessions": now.sessions, "Subscriptions": now.subscriptions,
      "Retained": now.retained, "Waiting": now.queued, "Received": now.received, "Sent": now.sent,
      "Up for hours": (now.uptime_s / 3600).toFixed(1) };
    $("totals").replaceChildren(...Object.entries(tiles).map(([name, value]) => {
      const tile = make("div"); tile.append(make("dt", name), make("dd", Number(value).toLocaleString("en"))); return tile;
    }));
    if (state.before) {
      const seconds = Math.max(now.now - state.before.now, 0.001);
      state.rates.push([(now.received - state.before.received) / seconds, (now.sent - state.before.sent) / seconds]);
      state.rates.splice(0, state.rates.length - kept);
    }
    state.before = now;
    rates();
  },
  async overlay() {
    const now = await ask("/overlay");
    if (!now.name) { $("graph").replaceChildren(draw("text", { x: 20, y: 40 }, "This broker is in no overlay.")); return; }
    graph(now);
    const rows = [];
    for (const [peer, ways] of Object.entries(now.links)) for (const [way, link] of Object.entries(ways))
      rows.push([peer, now.members[peer] || "", way, link.up ? "connected" : "away", link.sent, link.received,
        link.waiting, now.suspected[peer] || 0]);
    fill("links", rows);
    $("outbox").textContent = `Outbox: ${now.outbox.depth} publications, ${now.outbox.bytes} bytes.`;
  },
  async clients() {
    const found = await ask(`/clients?limit=200&search=${encodeURIComponent($("find-client").value)}`);
    fill("client-table", found.clients.map((one) => {
      const before = state.delivered.get(one.client), at = performance.now();
      const rate = before ? (one.delivered - before[0]) / ((at - before[1]) / 1000) : 0;
      state.delivered.set(one.client, [one.delivered, at]);
      const act = state.me.write && one.connected ? button("Disconnect", `Disconnect ${one.client}`, async () => {
        await ask(`/clients/${encodeURIComponent(one.client)}/disconnect`, "POST"); await show.clients(); }) : "";
      return [one.client, one.user, one.connected ? "connected" : "away", one.address, one.version, one.subscriptions,
        one.delivered, Math.round(rate), one.waiting, act];
    }));
    $("client-total").textContent = `${found.clients.length} of ${found.total} shown.`;
  },
  async subscriptions() {
    const found = await ask(`/subscriptions?limit=500&search=${encodeURIComponent($("find-sub").value)}`);
    fill("sub-table", found.subscriptions.map((one) => [one.filter, one.client, one.qos]));
  },
  async retained() {
    const found = await ask(`/retained?limit=200&filter=${encodeURIComponent($("retained-filter").value || "#")}`);
    fill("retained-table", found.messages.map((one) => [one.topic, one.payload, one.bytes, one.qos,
      state.me.write ? button("Clear", `Clear ${one.topic}`, async () => {
        await ask(`/retained?topic=${encodeURIComponent(one.topic)}`, "DELETE"); await show.retained(); }) : ""]));
  },
  async entities() {
    const found = (await ask("/entities")).entities;
    $("no-entities").hidden = found.length > 0;
    $("entity-grid").replaceChildren(...found.map((one) => {
      let word = one.state;
      try { const read = JSON.parse(one.state); word = read.state || read.availability || one.state; } catch { /* plain text */ }
      const good = /^(ready|online|available|join|up|alive|connected)/i.test(String(word));
      const item = make("li", `${good ? "●" : "○"} ${one.entity}`, good ? "good" : "bad");
      item.append(make("br"), make("small", `${word} · ${one.gateway}`));
      return item;
    }));
  },
  async try() {},
  async users() {
    const found = await ask("/users");
    fill("user-table", Object.entries(found.users).map(([name, one]) => [name, one.groups.join(", "), one.acl.join("\n"),
      one.enabled ? "enabled" : "disabled", state.me.write ? button("Remove", `Remove ${name}`, async () => {
        if (confirm(`Remove ${name}?`)) { await ask(`/users/${encodeURIComponent(name)}`, "DELETE"); await show.users(); }
      }) : ""]));
    $("user-form").hidden = !state.me.write;
  },
  async log() {
    const lines = (await ask("/log")).lines;
    fill("log-table", lines.slice(-200).reverse().map((one) => [one.time, one.level, one.event]));
  },
};

function level(word) {
  const marks = { well: "✓", degraded: "!", broken: "✕" };
  $("level").textContent = `${marks[word] || ""} ${word}`;
  $("level").className = `level ${word}`;
}

function rates() {
  const most = Math.max(1, ...state.rates.flat());
  const line = (place) => state.rates.map((one, at) => `${40 + at * 550 / kept},${105 - 90 * one[place] / most}`).join(" ");
  $("rates").replaceChildren(
    draw("polyline", { class: "received", points: line(0) }), draw("polyline", { class: "sent", points: line(1) }),
    draw("text", { x: 4, y: 18 }, Math.round(most).toLocaleString("en")), draw("text", { x: 4, y: 110 }, "0"),
    draw("text", { x: 420, y: 18 }, "━ received   ┅ sent"));
}

function graph(now) {
  const places = new Map(), parts = [], width = 800 / now.regions.length, others = [];
  now.regions.forEach((region, at) => {
    const x = width * (at + 0.5), y = 150, radius = Math.min(width * 0.36, 110);
    places.set(region.name, [x, y]);
    parts.push(draw("circle", { cx: x, cy: y, r: radius, class: "region" }),
      draw("text", { x, y: y - radius - 8, "text-anchor": "middle" }, `${region.name} (${region.needed} of ${region.members.length})`));
    region.members.forEach((name, place) => {
      const angle = 2 * Math.PI * place / region.members.length - Math.PI / 2;
      places.set(name, [x + radius * Math.cos(angle), y + radius * Math.sin(angle)]);
    });
  });
  for (const name of Object.keys(now.members)) if (!places.has(name)) others.push(name);
  others.forEach((name, at) => places.set(name, [800 * (at + 0.5) / others.length, 360]));
  const lines = now.edges.map(([a, b]) => [places.get(a), places.get(b), "edge"]);
  const here = places.get(now.name);
  for (const [peer, ways] of Object.entries(now.links)) for (const link of Object.values(ways))
    if (places.get(peer) && here) lines.push([here, places.get(peer), link.up ? "link" : "link away"]);
  const drawn = lines.filter(([a, b]) => a && b).map(([a, b, kind]) =>
    draw("line", { x1: a[0], y1: a[1], x2: b[0], y2: b[1], class: kind }));
  const away = new Set(Object.entries(now.links).filter(([, w]) => Object.values(w).some((l) => !l.up)).map(([p]) => p));
  const nodes = [...places].filter(([name]) => now.members[name]).flatMap(([name, [x, y]]) => {
    const kind = now.named.includes(name) ? " named" : away.has(name) ? " away" : "";
    const form = kind === " named" ? draw("path", { d: `M${x},${y - 15} l15,26 h-30 z`, class: "node named" })
      : draw("circle", { cx: x, cy: y, r: name === now.name ? 16 : 12, class: `node${kind}` });
    const note = kind === " away" ? " (away)" : kind === " named" ? " (named)" : name === now.name ? " (here)" : "";
    return [form, draw("text", { x, y: y + 32, "text-anchor": "middle" }, name + note)];
  });
  $("graph").replaceChildren(...parts, ...drawn, ...nodes);
}

// ------------------------------------------------------------------------------------------------ going around

function go(name) {
  state.section = name;
  for (const each of Object.keys(sections)) $(each).hidden = each !== name;
  for (const each of $("nav").children) {
    if (each.dataset.name === name) each.setAttribute("aria-current", "page"); else each.removeAttribute("aria-current");
  }
  history.replaceState(null, "", `#${name}`);
  refresh();
}

async function refresh() {
  if (!state.me || document.hidden) return;
  await attempt(async () => {
    if (state.me.admin && state.section !== "overview") level((await ask("/overview")).status.level);
    await show[state.section]();
  });
}

function leave() {
  state.me = null;
  if (state.stream) { state.stream.close(); state.stream = null; }
  $("login").hidden = false; $("nav").hidden = true; $("logout").hidden = true;
  $("who").textContent = ""; $("level").textContent = "";
  for (const each of Object.keys(sections)) $(each).hidden = true;
}

async function enter() {
  state.me = await ask("/me");
  $("login").hidden = true; $("nav").hidden = false; $("logout").hidden = false;
  const mode = state.me.admin ? (state.me.write ? "admin" : "admin, read-only") : "user";
  $("who").textContent = `${state.me.user} (${mode})`;
  const names = Object.keys(sections).filter((name) => state.me.admin ? name !== "users" || state.me.users
    : ["retained", "try"].includes(name));
  $("nav").replaceChildren(...names.map((name) => {
    const made = make("button", sections[name]); made.type = "button"; made.dataset.name = name;
    made.addEventListener("click", () => { go(name); $("main").focus(); });
    return made;
  }));
  const wanted = location.hash.slice(1);
  go(names.includes(wanted) ? wanted : names[0]);
}

$("login").addEventListener("submit", (event) => {
  event.preventDefault();
  const form = new FormData(event.target);
  attempt(async () => {
    await ask("/login", "POST", { user: form.get("user"), password: form.get("password") });
    event.target.reset(); await enter();
  });
});
$("logout").addEventListener("click", () => attempt(async () => { await ask("/logout", "POST"); leave(); }));
$("publish").addEventListener("submit", (event) => {
  event.preventDefault();
  const form = new FormData(event.target);
  $("published").textContent = "";
  attempt(async () => {
    await ask("/publish", "POST", { topic: form.get("topic"), payload: form.get("payload"), qos: 1, retain: form.has("retain") });
    $("published").textContent = "published";
  });
});
$("subscribe").addEventListener("submit", (event) => {
  event.preventDefault();
  if (state.stream) state.stream.close();
  const stream = state.stream = new EventSource(`${api}/stream?filter=${encodeURIComponent(new FormData(event.target).get("filter"))}`);
  $("unsubscribe").disabled = false;
  stream.onmessage = (message) => {
    const one = JSON.parse(message.data), row = make("tr"), body = $("messages").tBodies[0];
    row.append(make("td", new Date(one.time * 1000).toLocaleTimeString()), make("td", one.topic, "long"), make("td", one.payload, "long"));
    body.prepend(row);
    while (body.rows.length > 200) body.lastChild.remove();
  };
  stream.onerror = () => { if (stream.readyState === 2) $("error").textContent = "the subscription was refused or has ended"; };
});
$("unsubscribe").addEventListener("click", () => { state.stream?.close(); state.stream = null; $("unsubscribe").disabled = true; });
$("user-form").addEventListener("submit", (event) => {
  event.preventDefault();
  const form = new FormData(event.target), body = { acl: String(form.get("acl")).split("\n").filter((line) => line.trim()) };
  if (form.get("password")) body.password = form.get("password");
  attempt(async () => {
    await ask(`/users/${encodeURIComponent(form.get("user"))}`, "PUT", body);
    $("user-saved").textContent = "saved"; event.target.elements.password.value = ""; await show.users();
  });
});
for (const [id, name] of [["find-client", "clients"], ["find-sub", "subscriptions"], ["retained-filter", "retained"]])
  $(id).addEventListener("input", () => attempt(show[name]));
setInterval(refresh, every);
attempt(async () => { try { await enter(); } catch { leave(); } });
