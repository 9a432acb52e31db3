"use strict";
// The page of a broker: asks the API every two seconds for the section that is shown. All text goes in by textContent.

const api = "/api/v1", every = 2000, dayEvery = 20000, kept = 120, unsteady = 3;
const $ = (id) => document.getElementById(id);
const state = { me: null, section: null, rates: [], before: null, counted: new Map(), stream: null, trace: null, group: "", dayAt: 0 };
const sections = { overview: "Now", overlay: "Overlay", clients: "Clients", subscriptions: "Subscriptions",
  retained: "Retained", entities: "Entities", try: "Try topics", trace: "Trace", users: "Users", log: "Log" };

async function ask(path, method = "GET", body) {
  const options = { method, headers: {} }, me = state.me;
  if (method !== "GET") options.headers["X-Requested-By"] = "page";
  if (body !== undefined) { options.headers["Content-Type"] = "application/json"; options.body = JSON.stringify(body); }
  const answer = await fetch(api + path, options);
  const content = await answer.json();
  if (answer.status === 401 && path !== "/login") leave(me);
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

// How fast a counter grows, from one look to the next.
function pace(name, count) {
  const before = state.counted.get(name), at = performance.now();
  state.counted.set(name, [count, at]);
  return before ? Math.max(0, (count - before[0]) / ((at - before[1]) / 1000)) : 0;
}

// Names of entities as people know them: what a topic level cannot hold is percent-encoded.
function plainly(name) {
  try { return decodeURIComponent(name); } catch { return name; }
}

function since(ms) {
  const minutes = Math.max(0, Math.round((Date.now() - ms) / 60000));
  const ago = minutes < 1 ? "just now" : minutes < 120 ? `${minutes} min` : minutes < 2880 ? `${Math.round(minutes / 60)} h`
    : `${Math.round(minutes / 1440)} days`;
  return `${new Date(ms).toLocaleString()} (${ago})`;
}

// What is drawn anew every two seconds may not take the focus from who goes by keyboard.
function redraw(element, parts) {
  const label = element.contains(document.activeElement) ? document.activeElement.getAttribute("aria-label") : null;
  element.replaceChildren(...parts);
  if (label === null) return;
  if (!$("sure").open) (labelled(label, element) || element.closest("[tabindex]") || $("main")).focus();
}

function labelled(label, element = document) {
  return [...element.querySelectorAll("[aria-label]")].find((one) => one.getAttribute("aria-label") === label);
}

function fill(id, rows) {
  redraw($(id).tBodies[0], rows.map((cells) => {
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
  try { fail(""); await act(); } catch (error) { fail(error.message); }
}

// What a look every two seconds says gives way to what somebody's own action said, not the other way round.
function fail(text, looked = false) {
  const place = $("error");
  if (looked && !text && place.dataset.looked !== "yes") return;
  place.textContent = text; place.dataset.looked = looked ? "yes" : "no";
}

// Ask before what cannot be taken back: Enter or Escape on the first button leaves everything as it is.
function sure(text, word) {
  $("sure-text").textContent = text; $("sure-yes").textContent = word;
  const dialog = $("sure"), label = document.activeElement.getAttribute("aria-label");
  const asked = dialog.asked = (dialog.asked || 0) + 1;
  dialog.returnValue = "no"; dialog.showModal();
  return new Promise((done) => dialog.addEventListener("close", function closed() {
    if (dialog.open && dialog.asked === asked) return;  // the end of the question before, told after this one was asked
    dialog.removeEventListener("close", closed);
    if (!dialog.open) (labelled(label) || $("main")).focus();  // what was asked from may have been drawn anew meanwhile
    done(dialog.asked === asked && dialog.returnValue === "yes");
  }));
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
    if (performance.now() >= state.dayAt) { state.dayAt = performance.now() + dayEvery; day(await ask("/day")); }
    const bridges = Object.entries(status.bridges || {});
    $("bridges").hidden = !bridges.length;
    fill("bridge-table", bridges.map(([name, one]) => [name, one.up ? "connected" : `away: ${one.error || "not reached yet"}`,
      one.sent, one.received, one.waiting]));
  },
  async overlay() {
    const now = await ask("/overlay");
    reach(now.histories || []);
    if (!now.name) { $("graph").replaceChildren(draw("text", { x: 20, y: 40 }, "This broker is in no overlay.")); return; }
    for (const [peer, ways] of Object.entries(now.links)) for (const [way, link] of Object.entries(ways))
      link.pace = pace(`link ${peer} ${way}`, link.sent + link.received);
    graph(now);
    const rows = [];
    for (const [peer, ways] of Object.entries(now.links)) for (const [way, link] of Object.entries(ways))
      rows.push([peer, now.members[peer] || "", way, link.up ? "connected" : "away", link.sent, link.received,
        Math.round(link.pace), link.waiting, now.suspected[peer] || 0]);
    fill("links", rows);
    $("outbox").textContent = `Outbox: ${now.outbox.depth} publications, ${now.outbox.bytes} bytes.`;
    const readers = (now.standing || {}).readers || [];
    $("readers").hidden = !readers.length;
    fill("reader-table", readers.map((one) => [one.reader, one.scope,
      one.unreceived_s ? `${Math.round(one.unreceived_s)} s without a receipt` : "has all", new Date(one.time_ms).toLocaleString()]));
    const told = (now.standing || {}).proposal || {}, swap = told.swap;
    const told_by = ((now.standing || {}).swaps || {}).organiser || "";
    $("proposal").textContent = swap ? `Measured: joining ${swap.add} and parting ${swap.remove} `
      + (swap.gain_percent === null ? `mends what broke: ${told.why}` : `would spare ${swap.gain_percent} %`)
      + (told_by ? `; the organiser ${told_by} may sign it.` : `; the owner signs it with "veilmq overlay organise --apply".`)
      : told.why ? `Measured: ${told.why}.` : "";
    const swaps = (now.standing || {}).swaps || {}, offered = swaps.offered;
    if (swaps.stopped) $("proposal").textContent += ` The organiser ${told_by} signed two changes of one number: it is stopped.`;
    else if (offered) $("proposal").textContent += ` Offered as tree ${offered.number}: joining ${offered.add}, parting ${offered.remove}; `
      + `endorsed by ${offered.endorsed.length} replicas${offered.objection ? `; here: ${offered.objection}` : ""}.`;
  },
  async clients() {
    const found = await ask(`/clients?limit=200&search=${encodeURIComponent($("find-client").value)}`);
    fill("client-table", found.clients.map((one) => {
      const rate = pace(`client ${one.client}`, one.delivered);
      const act = state.me.write && one.connected ? button("Disconnect", `Disconnect ${one.client}`, async () => {
        if (!await sure(`Close the connection of ${one.client}?`, "Disconnect")) return;
        await ask(`/clients/${encodeURIComponent(one.client)}/disconnect`, "POST"); await show.clients(); }) : "";
      const filters = one.subscriptions ? button(String(one.subscriptions), `Filters of ${one.client}`, async () => {
        $("find-sub").value = one.client; go("subscriptions"); $("find-sub").focus(); }) : 0;
      return [one.client, one.user, one.connected ? "connected" : "away", one.address, one.version, filters,
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
        if (!await sure(`Clear what is retained on ${one.topic}?`, "Clear")) return;
        await ask(`/retained?topic=${encodeURIComponent(one.topic)}`, "DELETE"); await show.retained(); }) : ""]));
  },
  async entities() {
    const fleet = await ask(`/fleet?limit=500&group=${encodeURIComponent(state.group)}`), traced = fleet.entities || [];
    $("fleet").hidden = !fleet.groups;
    redraw($("groups"), (fleet.groups || []).map((one) => {
      const made = button(one.group, `Group ${one.group}`, async () => {
        state.group = state.group === one.group ? "" : one.group; await show.entities(); });
      made.setAttribute("aria-pressed", String(state.group === one.group));
      made.append(make("br"), make("small", `● ${one.alive} there, ◐ ${one.suspected} suspected, ○ ${one.failed} failed, `
        + `○ ${one.disconnected} gone`));
      const item = make("li"); item.append(made); return item;
    }));
    fill("away-table", traced.filter((one) => one.health !== "alive" || one.flaps >= unsteady).map((one) => [
      plainly(one.entity), one.group, one.flaps >= unsteady ? `${one.health}, flapping` : one.health, since(one.since_ms), one.flaps]));
    const known = new Set(traced.map((one) => one.entity.slice(one.entity.indexOf(":") + 1)));
    const plain = state.group ? [] : (await ask("/entities")).entities.map((one) => {
      let word = one.state;
      try { const read = JSON.parse(one.state); word = read.state || read.availability || one.state; } catch { /* plain text */ }
      const there = /^(ready|online|available|join|up|alive|connected)/i.test(String(word));
      return [one.entity, String(word), one.gateway, there ? "good" : "bad"];
    }).filter(([name]) => !known.has(name));
    const kinds = { alive: "good", suspected: "unsure" };
    const all = [...traced.map((one) => [one.entity, one.flaps >= unsteady ? `${one.health} ↯ flapping` : one.health,
      one.group, kinds[one.health] || "bad"]), ...plain];
    $("no-entities").hidden = all.length > 0;
    const marks = { good: "●", unsure: "◐", bad: "○" };
    $("entity-grid").replaceChildren(...all.map(([name, word, where, kind]) => {
      const item = make("li", `${marks[kind]} ${plainly(name)}`, kind);
      item.append(make("br"), make("small", `${word} · ${where}`));
      return item;
    }));
  },
  async try() {},
  async trace() {},
  async users() {
    const found = await ask("/users");
    fill("user-table", Object.entries(found.users).map(([name, one]) => [name, one.groups.join(", "), one.acl.join("\n"),
      one.enabled ? "enabled" : "disabled", state.me.write ? button("Remove", `Remove ${name}`, async () => {
        if (await sure(`Remove ${name}, and send its clients away?`, "Remove")) { await ask(`/users/${encodeURIComponent(name)}`, "DELETE"); await show.users(); }
      }) : ""]));
    $("user-form").hidden = !state.me.write;
  },
  async log() {
    const lines = (await ask("/log")).lines;
    const about = ({ time, level, logger, event, id, ...fields }) =>
      Object.entries(fields).map(([name, value]) => `${name}=${value}`).join(" ");
    fill("log-table", lines.slice(-200).reverse().map((one) => [one.time, one.level, one.event, about(one)]));
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

// The last day: messages a second, the greatest of each two minutes, and clients on a scale of their own.
function day(told) {
  const place = (name) => told.fields.indexOf(name), end = Date.now() / 1000, width = 550, columns = 275;
  const column = (at) => Math.floor((at - end + 86400) / 86400 * (columns - 1));
  const most = (name) => {
    const found = new Map();
    for (const row of told.rows) found.set(column(row[0]), Math.max(row[place(name)], found.get(column(row[0])) || 0));
    return [...found].filter(([at]) => at >= 0);
  };
  const line = (values, top) => values.map(([at, value]) => `${40 + at * width / columns},${105 - 90 * value / top}`).join(" ");
  const received = most("received"), sent = most("sent"), clients = most("clients");
  const top = Math.max(1, ...[...received, ...sent].map(([, value]) => value)), many = Math.max(1, ...clients.map(([, value]) => value));
  $("day").replaceChildren(
    draw("polyline", { class: "received", points: line(received, top) }), draw("polyline", { class: "sent", points: line(sent, top) }),
    draw("polyline", { class: "clients", points: line(clients, many) }),
    draw("text", { x: 4, y: 18 }, Math.round(top).toLocaleString("en")), draw("text", { x: 4, y: 110 }, "0"),
    draw("text", { x: 300, y: 12 }, `━ received   ┅ sent   ┈ clients (of ${many})`), draw("text", { x: 40, y: 118 }, "24 h ago"),
    draw("text", { x: 560, y: 118 }, "now"));
  $("no-alarms").hidden = told.alarms.length > 0; $("alarm-table").hidden = !told.alarms.length;
  const when = (at) => at === null ? "lasts" : new Date(at * 1000).toLocaleString();
  fill("alarm-table", told.alarms.slice(0, 50).map((one) => [when(one.since), when(one.over), one.level, one.text]));
}

// Where everything stands: regions side by side as far as the width goes, whoever is in none below. Units are pixels.
function placed(now, width) {
  const columns = Math.max(1, Math.min(now.regions.length, Math.floor(width / 230))), deep = 250, radius = 76;
  const inside = new Set(now.regions.flatMap((region) => region.members)), places = new Map(), regions = [];
  now.regions.forEach((region, at) => {
    const x = width / columns * (at % columns + 0.5), y = deep * Math.floor(at / columns) + 130;
    regions.push([region, x, y, radius]); places.set(region.name, [x, y]);
    region.members.forEach((name, place) => {
      const angle = 2 * Math.PI * place / region.members.length - Math.PI / 2;
      places.set(name, [x + radius * Math.cos(angle), y + radius * Math.sin(angle)]);
    });
  });
  const below = deep * Math.ceil(now.regions.length / columns) + 40, abreast = Math.max(1, Math.floor(width / 110));
  const others = Object.keys(now.members).filter((name) => !inside.has(name)).sort((a) => a === now.name ? -1 : 0);
  const shown = others.slice(0, 24), line = Math.min(abreast, shown.length || 1);
  shown.forEach((name, at) => places.set(name, [width / line * (at % line + 0.5), below + 70 * Math.floor(at / line)]));
  const height = below + 70 * Math.ceil(shown.length / line) - 20;
  return { regions, places, height, more: others.length - shown.length };
}

function graph(now) {
  const width = Math.max(300, $("graph").clientWidth || 800), { regions, places, height, more } = placed(now, width);
  const here = places.get(now.name), up = (ways) => Object.values(ways).some((link) => link.up);
  const away = new Set(Object.entries(now.links).filter(([, ways]) => !up(ways)).map(([peer]) => peer));
  for (const region of now.standing?.presence || []) {  // of those that we have no link with, other replicas tell
    for (const name of region.silent) if (!now.links[name]) away.add(name);
  }
  const label = (x, y, text, kind) => draw("text", { x, y, "text-anchor": "middle", class: kind }, text);
  const edges = now.edges.map(([a, b]) => [places.get(a), places.get(b)]).filter(([a, b]) => a && b)
    .map(([a, b]) => draw("line", { x1: a[0], y1: a[1], x2: b[0], y2: b[1], class: "edge" }));
  const rings = regions.flatMap(([region, x, y, radius]) => [draw("circle", { cx: x, cy: y, r: radius, class: "region" }),
    label(x, y - radius - 26, `${region.name}: ${region.needed} of ${region.members.length} needed`, "name")]);
  const lines = [], rates = [];
  for (const [peer, ways] of Object.entries(now.links)) {
    const there = places.get(peer);
    if (!there || !here) continue;
    const speed = Object.values(ways).reduce((sum, link) => sum + (link.pace || 0), 0);
    const drawn = { x1: here[0], y1: here[1], x2: there[0], y2: there[1] };
    lines.push(away.has(peer) ? draw("line", { ...drawn, class: "link away" })
      : draw("line", { ...drawn, class: "link", "stroke-width": (2 + Math.log10(1 + speed) * 2).toFixed(1) }));
    if (speed >= 0.5) rates.push(label((here[0] + 2 * there[0]) / 3, (here[1] + 2 * there[1]) / 3, `${Math.round(speed)}/s`, "rate"));
  }
  const said = [], nodes = [...places].filter(([name]) => now.members[name]).flatMap(([name, [x, y]]) => {
    const kind = now.named.includes(name) ? " named" : away.has(name) ? " away" : "";
    const form = kind === " named" ? draw("path", { d: `M${x},${y - 15} l15,26 h-30 z`, class: "node named" })
      : draw("circle", { cx: x, cy: y, r: name === now.name ? 15 : 11, class: `node${kind}` });
    const notes = [...(kind === " away" ? ["away"] : kind === " named" ? ["named"] : name === now.name ? ["here"] : []),
      ...(now.suspected[name] ? [`suspected ${now.suspected[name]}×`] : [])].join(", ");
    if (notes) said.push(`${name} ${notes}`);
    const cut = name.length > 14 ? `${name.slice(0, 13)}…` : name;
    form.append(draw("title", {}, name));
    return [form, label(x, y + 27, notes ? `${cut} (${notes})` : cut, "name")];
  });
  if (more) nodes.push(draw("text", { x: 8, y: height - 6 }, `and ${more} more`));
  $("graph").setAttribute("viewBox", `0 0 ${width} ${height}`);
  $("graph").setAttribute("aria-label", `${regions.length} regions, ${Object.keys(now.members).length} members: ${said.join("; ")}`);
  $("graph").replaceChildren(...edges, ...rings, ...lines, ...rates, ...nodes);
}

// How far histories reach: time goes to the right, up to now; a bar for each replica, and one for a quorum of them.
function reach(scopes) {
  $("histories").hidden = !scopes.length;
  if (!scopes.length) return;
  const width = Math.max(300, $("reach").clientWidth || 800), left = 130, row = 22, now = Date.now(), parts = [], said = [];
  let y = 0;
  const ago = (ms) => { const h = (now - ms) / 3600000; return h < 2 ? `${Math.round(h * 60)} min` : h < 48 ? `${Math.round(h)} h` : `${Math.round(h / 24)} days`; };
  const cut = (text) => text.length > 16 ? `${text.slice(0, 15)}…` : text;
  for (const scope of scopes) {
    const from = now - scope.days * 86400000, span = width - left - 12;
    y += 22;
    parts.push(draw("text", { x: 8, y, class: "name" }, `${scope.scope}, ${scope.days} days${scope.region ? ` in ${scope.region}` : ""}`));
    y += 8;
    const bar = (name, first, note, kind) => {
      const start = left + span * Math.min(1, Math.max(0, (first - from) / (now - from)));
      const told = note || (first ? ago(first) : "nothing");
      parts.push(draw("text", { x: 8, y: y + 15 }, cut(name)), draw("rect", { x: left, y: y + 2, width: span, height: row - 6, class: "track" }));
      if (first) {
        const drawn = draw("rect", { x: start, y: y + 2, width: Math.max(2, left + span - start), height: row - 6, class: kind });
        drawn.append(draw("title", {}, `${name}: since ${new Date(first).toLocaleString()}`)); parts.push(drawn);
      }
      parts.push(draw("text", { x: left + 6, y: y + 15, class: "rate" }, told));
      said.push(`${name} ${told}`); y += row;
    };
    for (const one of scope.replicas) bar(one.replica, one.first_ms, one.note, "kept");
    if (scope.needed) bar(`any ${scope.needed} of ${scope.replicas.length}`, scope.first_ms, scope.first_ms ? "" : "too few answer or keep", "quorum");
  }
  $("reach").setAttribute("viewBox", `0 0 ${width} ${y + 8}`);
  $("reach").setAttribute("aria-label", `How far histories reach: ${said.join("; ")}`);
  $("reach").replaceChildren(...parts);
}

// ------------------------------------------------------------------------------------------------ going around

function go(name) {
  state.section = name; fail("");
  for (const each of Object.keys(sections)) $(each).hidden = each !== name;
  for (const each of $("nav").children) {
    if (each.dataset.name === name) each.setAttribute("aria-current", "page"); else each.removeAttribute("aria-current");
  }
  history.replaceState(null, "", `#${name}`);
  refresh();
}

async function refresh() {
  const me = state.me;
  if (!me || document.hidden || $("sure").open) return;
  try {
    if (state.me.admin && state.section !== "overview") level((await ask("/overview")).status.level);
    await show[state.section]();
    fail("", true);
  } catch (error) { if (!state.me || state.me === me) fail(error.message, true); }
}

function leave(me) {  // the login that is over
  if (state.me !== me) return;  // left already, and somebody may be typing; or another login has begun
  state.me = null;
  for (const name of ["stream", "trace"]) if (state[name]) { state[name].close(); state[name] = null; }
  $("login").hidden = false; $("nav").hidden = true; $("logout").hidden = true;
  $("who").textContent = ""; $("level").textContent = ""; $("login").elements.user.focus();
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
    made.addEventListener("click", () => { go(name); $("main").focus({ preventScroll: true }); scrollTo(0, 0); });
    return made;
  }));
  const wanted = location.hash.slice(1);
  go(names.includes(wanted) ? wanted : names[0]);
}

ask("/ways").then((ways) => {
  if (!ways.provider) return;
  $("provider").querySelector("a").href = ways.provider;
  $("provider").querySelector("span").textContent = ways.name; $("provider").hidden = false;
}, () => {});
$("login").addEventListener("submit", (event) => {
  event.preventDefault();
  const form = new FormData(event.target);
  attempt(async () => {
    await ask("/login", "POST", { user: form.get("user"), password: form.get("password") });
    event.target.reset(); await enter(); $("main").focus();
  });
});
$("logout").addEventListener("click", () => attempt(async () => {
  const me = state.me;
  await ask("/logout", "POST");
  leave(me);
}));
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
  const filter = new FormData(event.target).get("filter");
  const stream = state.stream = new EventSource(`${api}/stream?filter=${encodeURIComponent(filter)}`);
  $("unsubscribe").disabled = false; $("subscribed").textContent = ""; fail("");
  stream.addEventListener("subscribed", () => { $("subscribed").textContent = `subscribed to ${filter}`; });
  stream.onmessage = (message) => {
    const one = JSON.parse(message.data), row = make("tr"), body = $("messages").tBodies[0];
    row.append(make("td", new Date(one.time * 1000).toLocaleTimeString()), make("td", one.topic, "long"), make("td", one.payload, "long"));
    body.prepend(row);
    while (body.rows.length > 200) body.lastChild.remove();
  };
  stream.onerror = () => {
    $("subscribed").textContent = "";
    if (stream.readyState === 2) fail("the subscription was refused or has ended");
  };
});
$("unsubscribe").addEventListener("click", () => {
  state.stream?.close(); state.stream = null; $("subscribed").textContent = "";
  $("subscribe").querySelector("button").focus(); $("unsubscribe").disabled = true;
});
$("follow").addEventListener("submit", (event) => {
  event.preventDefault();
  state.trace?.close(); fail("");
  const form = new FormData(event.target), wanted = new URLSearchParams([...form].filter(([, value]) => value.trim()));
  const stream = state.trace = new EventSource(`${api}/trace?${wanted}`);
  $("unfollow").disabled = false; $("followed").textContent = "";
  stream.addEventListener("subscribed", () => { $("followed").textContent = `following ${[...wanted.values()].join(", ")}`; });
  stream.onmessage = (message) => {
    const { time, member, step, client, topic, missed, message: name, ...about } = JSON.parse(message.data);
    const row = make("tr"), body = $("step-table").tBodies[0];
    row.append(make("td", new Date(time).toLocaleTimeString()), make("td", step), make("td", name || "", "long"),
      make("td", client || "", "long"), make("td", topic || "", "long"),
      make("td", Object.entries(about).map(([key, value]) => `${key}=${value}`).join(" "), "long"));
    body.prepend(row);
    while (body.rows.length > 500) body.lastChild.remove();
    if (missed) $("followed").textContent = `${missed} steps missed: ask for fewer messages`;
  };
  stream.onerror = () => {
    $("followed").textContent = "";
    if (stream.readyState === 2) fail("say which client, topic filter or network to follow; at most 8 follow at once");
  };
});
$("unfollow").addEventListener("click", () => {
  state.trace?.close(); state.trace = null; $("followed").textContent = "";
  $("follow").querySelector("button").focus(); $("unfollow").disabled = true;
});
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
addEventListener("resize", () => { if (state.section === "overlay") refresh(); });
setInterval(refresh, every);
attempt(async () => { try { await enter(); } catch { leave(state.me); } });
