"use strict";
// The page shows what GET /events sends: each event is the whole state. Everything is inserted as text, never as markup.

let state = null, skew = 0;
const chosen = new Map(); // program: the generation whose receipt is shown; none: the newest
const byId = id => document.getElementById(id);

function el(name, props, ...children) {
  const e = document.createElement(name);
  for (const [key, value] of Object.entries(props || {})) {
    if (key.startsWith("on")) e.addEventListener(key.slice(2), value);
    else if (value !== undefined && value !== null && value !== false) e.setAttribute(key, value);
  }
  e.append(...children.filter(c => c !== null && c !== undefined && c !== ""));
  return e;
}

function svg(name, props, text) {
  const e = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(props)) e.setAttribute(key, value);
  if (text !== undefined) e.textContent = text;
  return e;
}

const now = () => Date.now() + skew;
const at = t => t ? Date.parse(t) : 0;

// span formats a duration in ms.
function span(ms) {
  if (ms < 0) ms = 0;
  if (ms < 1000) return Math.round(ms) + " ms";
  if (ms < 10e3) return (ms / 1000).toFixed(1) + " s";
  if (ms < 120e3) return Math.round(ms / 1000) + " s";
  if (ms < 7200e3) return Math.round(ms / 60e3) + " min";
  if (ms < 172800e3) return Math.round(ms / 3600e3) + " h";
  return Math.round(ms / 86400e3) + " d";
}
const took = ns => ns ? span(ns / 1e6) : "–";

// age is an element that keeps itself current.
function age(t, before, after) {
  const e = el("time", { datetime: t, "data-before": before || "", "data-after": after || "" });
  tickAge(e);
  return e;
}
function tickAge(e) {
  e.textContent = e.dataset.before + span(now() - at(e.dateTime)) + e.dataset.after;
}

function count(n, what) { return n + " " + what + (n === 1 ? "" : "s"); }
const by = who => who ? " · by " + who : "";
const percent = share => (share / 100).toLocaleString(undefined, { maximumFractionDigits: 2 }) + " %"; // of parts of 10,000
const word = s => String(s).split(" ")[0]; // the class of a state

function render() {
  const st = state.status;
  byId("about").replaceChildren(st.version + " · PID " + st.pid + " · ", age(st.started, "up ", ""), st.stopping ? " · stopping" : "");
  byId("upgrade").hidden = !st.upgrade_failed;
  byId("upgrade").textContent = "The last upgrade failed: " + st.upgrade_failed;
  const bad = st.programs.filter(p => !["up", "reloading"].includes(p.state)).length;
  document.title = (bad ? "(" + bad + ") " : "") + "supervisord";
  byId("programs").replaceChildren(...st.programs.map(program));
  renderRecent();
  unlockable();
}

function program(p) {
  const d = state.details[p.name] || { receipts: [] };
  const receipt = d.receipts.find(r => r.generation === chosen.get(p.name)) || d.receipts[0];
  return el("article", { class: "card", "data-program": p.name, "data-state": p.state },
    el("header", {}, el("h2", {}, p.name), el("span", { class: "badge " + p.state }, p.state), el("p", { class: "summary" }, p.summary.replace(p.name + " " + p.state, "").replace(/^, /, "")),
      state.token && token() ? el("button", { type: "button", onclick: () => reload(p.name) }, "Reload") : null),
    problem(p), waits(p),
    receipt ? el("div", { class: "when" }, timeline(p, receipt), legend()) : null,
    el("h3", {}, "Workers"), ...p.generations.map(generation),
    p.generations.length ? null : el("p", { class: "summary" }, p.stop && p.stop.asked_by ? "none: stopped by " + p.stop.asked_by : "none"),
    ...listeners(p), ...receipts(p, d, receipt));
}

// problem says why the last reload failed, unless a later one succeeded, and when the next retry is.
function problem(p) {
  const last = p.reloads.filter(r => r.decided).pop(), f = last && last.failure, lines = [];
  if (f) {
    lines.push(el("strong", {}, "Generation " + last.generation + " failed"), " at " + (f.step || "?") + ": " + (f.reason || "") + (last.replaced ? ". Generation " + last.replaced + " still serves." : "."));
    if (f.tail && f.tail.length) lines.push(el("pre", {}, f.tail.slice(-5).join("\n")));
  }
  if (p.lost_lines) lines.push(el("div", {}, count(p.lost_lines, "line") + " of output could not be written to a log file; the log says why."));
  if (p.retry_at) lines.push(el("div", {}, "Next try in " + span(at(p.retry_at) - now()) + "."));
  return lines.length ? el("div", { class: "problem" }, ...lines) : null;
}

// waits says what waits for a person, and what a reload waits for.
function waits(p) {
  const lines = [], canary = p.generations.find(g => g.role === "trial" && g.held);
  if (canary) lines.push(el("div", {}, el("strong", {}, "Generation " + canary.number + " is a canary"), ", and well. " + (canary.held_until
    ? "It is promoted by itself in " + span(at(canary.held_until) - now()) + "."
    : `It waits for "supervisord promote ${p.name}" or "supervisord abort ${p.name}".`)));
  if (p.paused) lines.push(el("div", {}, el("strong", {}, "Paused"), " for " + span(at(p.paused.until) - now()) + " more" + by(p.paused.asked_by) +
    `: new connections wait. "supervisord resume ${p.name}" ends it.`));
  for (const g of p.generations.filter(g => g.kept_until)) {
    lines.push(el("div", {}, el("strong", {}, "Generation " + g.number + " is kept"), " for " + span(at(g.kept_until) - now()) + ` more: "supervisord rollback ${p.name}" returns to it.`));
  }
  if (p.due) lines.push(el("div", {}, "A reload waits (" + p.due.reason + by(p.due.asked_by) + "): " + p.due.waits_for + "."));
  return lines.length ? el("div", { class: "waits" }, ...lines) : null;
}

function generation(g) {
  return el("div", { "data-generation": g.number, "data-role": g.role },
    el("p", { class: "gen" }, el("b", { class: g.role }, g.role + " "), "generation " + g.number + " ",
      el("span", {}, "· " + g.reason + by(g.asked_by) + " · ", age(g.served || g.began, "", ""), g.held ? " · canary, held" : ""),
      g.share > 0 && g.share < 10000 ? el("span", { class: "share" }, " · " + percent(g.share) + " of new connections") : null,
      g.in_hand ? el("span", { class: "in-hand", title: "its connections; it gets no new ones, and is told to stop when only idle ones are left" }, " · " + inHand(g.in_hand)) : null),
    el("ul", { class: "workers" }, ...[...g.workers].sort((a, b) => a.slot - b.slot).map(worker)));
}

// inHand lists what a generation that gets no new connections has of the old ones.
function inHand(l) {
  const parts = [["queued", "not accepted"], ["handshakes", "being opened"], ["unread", "unread"], ["answering", "being answered"], ["idle", "idle"]];
  return parts.filter(([key]) => l[key]).map(([key, what]) => l[key] + " " + what).join(", ") || "nothing in hand";
}
const busy = l => l ? l.queued + l.handshakes + l.unread + l.answering : 0;

function worker(w) {
  return el("li", { class: w.state, "data-pid": w.pid }, el("b", {}, w.state), el("span", {}, " slot " + w.slot + " · PID " + (w.pid || "–")),
    el("small", { title: "CPU, memory and open connections of its processes" + (w.connections_error ? "; connections: " + w.connections_error : "") },
      age(w.since, "", ""), " · " + (w.cpu_percent ?? "?").toLocaleString(undefined, { maximumFractionDigits: 1 }) + " % · " + bytes(w.memory) +
      " · " + (w.connections ?? "?") + " conns"),
    w.text ? el("small", {}, w.text) : null);
}

function bytes(n) {
  if (n === undefined || n === null) return "?";
  return n < 10 * 2 ** 20 ? (n / 2 ** 20).toFixed(1) + " MiB" : n < 10 * 2 ** 30 ? Math.round(n / 2 ** 20) + " MiB" : (n / 2 ** 30).toFixed(1) + " GiB";
}

function listeners(p) {
  if (!p.listeners.length) return [];
  return [el("h3", {}, "Listeners"), el("ul", { class: "listeners" }, ...p.listeners.map(l => {
    const q = l.queue;
    return el("li", { "data-listener": l.name, "data-handover": l.handover }, el("b", {}, l.name), el("code", {}, l.address, lanes(l)),
      l.closed ? el("span", { title: "nothing serves; when_down = " + l.when_down }, "closed") :
      q ? el("span", { title: "connections that wait to be accepted" }, el("meter", { min: 0, max: q.limit, high: q.limit * .7, value: q.waiting }), " " + q.waiting + "/" + q.limit) : "");
  }))];
}

// lanes says which generation has which share of a listener's new connections, or why generations share the listener.
function lanes(l) {
  if (l.handover_why) return el("small", {}, " · shared: " + l.handover_why);
  const used = (l.lanes || []).filter(n => n.generation || n.share || n.queued);
  if (used.length < 2) return null;
  return el("small", { class: "lanes" }, " · " + used.map(n => (n.generation ? "generation " + n.generation : "lane " + n.number) + ": " + percent(Math.round(n.share * 10000)) +
    (n.queued ? ", " + n.queued + " waiting" : "")).join(" · "));
}

function receipts(p, d, shown) {
  if (!d.receipts.length) return [];
  const head = ["Generation", "Outcome", "When", "Took", "Spawn to ready", "Overlap", "Quiet", "Drain", "Left", "Lost", "Killed", "Queue", "Overflows"];
  const choose = r => { chosen.set(p.name, r.generation); render(); };
  const row = r => el("tr", { tabindex: 0, "aria-selected": r === shown, "data-receipt": r.generation, "data-outcome": r.outcome,
    title: r.reason + by(r.asked_by) + (r.rolled_back ? "; rolled back" + by(r.rolled_back_by) : "") + (r.left ? "; in hand at drain.timeout: " + inHand(r.left) : ""), onclick: () => choose(r), onkeydown: e => { if (e.key === "Enter") choose(r); } },
    el("td", {}, (r.replaced ? r.replaced + " → " : "") + r.generation), el("td", { class: word(r.outcome) }, r.rolled_back ? "rolled back" : r.outcome.replace("_", " ")),
    el("td", {}, age(r.began || r.decided, "", " ago")), ...figures(r).map(v => el("td", { class: "n" }, String(v))));
  return [el("h3", {}, "Reloads"), el("div", { class: "scroll" }, el("table", {},
    el("thead", {}, el("tr", {}, ...head.map((h, i) => el("th", { class: i > 2 && "n" }, h)))),
    el("tbody", {}, ...d.receipts.map(row))))];
}

function figures(r) {
  return [took(r.took_ns), took(r.spawn_to_ready_ns), took(r.overlap_ns), took(r.quiet_ns), took(r.drain_ns), busy(r.left), r.lost ? r.lost.reset + r.lost.queued : 0, r.killed,
    Math.max(0, ...Object.values(r.accept_queue || {})), r.listen_overflows];
}

function legend() {
  return el("ul", { class: "legend" }, ...["trial", "serving", "finishing", "draining", "failed"].map(k => el("li", { class: "l-" + k }, k)));
}

// timeline draws the generations around a reload as bars, and below them the open connections of the old generation.
function timeline(p, r) {
  const end0 = at(r.ended) || now(), begin0 = at(r.began || r.decided), pad = Math.max(2, (end0 - begin0) * .14);
  const from = begin0 - pad, to = end0 + pad, left = 46, row = 30;
  const W = Math.max(260, Math.min(1100, document.body.clientWidth - 70)); // so that text keeps its size
  const x = t => left + (Math.min(Math.max(t, from), to) - from) / (to - from) * (W - left);
  const lives = p.reloads.filter(l => l.began && at(l.began) < to && (!l.gone || at(l.gone) > from)).slice(-6);
  const samples = (r.connections || []).some(c => c.open) ? r.connections : [], high = lives.length * row;
  const H = high + 24 + (samples.length ? 66 : 0);
  const s = svg("svg", { class: "timeline", viewBox: `0 0 ${W} ${H}`, role: "img", "aria-label": `generations around the reload to generation ${r.generation}` });
  if (r.overlap_ns || !r.ended) {
    const last = Math.min(end0, r.ended ? at(r.ended) : now());
    const first = r.overlap_ns ? last - r.overlap_ns / 1e6 : begin0;
    s.append(svg("rect", { class: "overlap", x: x(first), y: 0, width: Math.max(1, x(last) - x(first)), height: high }));
  }
  lives.forEach((l, i) => life(s, l, p.reloads.find(n => n.replaced === l.generation && n.flipped), i * row, x));
  const when = new Date(begin0 - skew).toLocaleTimeString(undefined, { hourCycle: "h23" }) + (r.ended ? ", for " : ", for now ") + span(end0 - begin0);
  s.append(svg("line", { class: "axis", x1: left, x2: W, y1: high + 3, y2: high + 3 }),
    ...[begin0, end0].map(t => svg("line", { class: "axis", x1: x(t), x2: x(t), y1: 0, y2: high + 7 })), svg("text", { x: x(begin0), y: high + 20 }, when));
  if (samples.length) connections(s, r, x, high + 26, end0);
  return s;
}

// life draws one generation; next is the reload that steered its new connections away, if one did.
function life(s, l, next, y, x) {
  const began = at(l.began), served = l.outcome === "serves" && at(l.decided), retired = at(l.retired), gone = at(l.gone), end = gone || now() + 1e12;
  s.append(svg("text", { x: 40, y: y + 19, "text-anchor": "end" }, "gen " + l.generation));
  const bar = (kind, a, b, what) => {
    const x1 = x(a), x2 = x(b);
    if (x2 - x1 <= 0) return;
    const e = svg("rect", { class: "bar-" + kind, x: x1, y: y + 5, width: Math.max(2, x2 - x1), height: 20, rx: 3 });
    e.append(svg("title", {}, `generation ${l.generation}: ${what} for ${span(Math.min(b, now()) - a)}`));
    s.append(e);
  };
  bar("trial", began, served || retired || end, "on trial");
  if (served) bar("serving", served, retired || end, "served");
  const quiet = served && retired && next ? Math.min(end, next.quiet_ns ? at(next.flipped) + next.quiet_ns / 1e6 : end) : 0;
  if (quiet) bar("finishing", retired, quiet, "finished what it had in hand");
  if (retired) bar(served ? "draining" : "failed", Math.max(retired, quiet), end, served ? "draining" : l.outcome.replace("_", " ") + ", going");
}
function connections(s, r, x, y, end) {
  const h = 40, top = Math.max(1, ...r.connections.map(c => c.open)), t = c => at(r.decided) + c.at_ns / 1e6;
  let path = "", last = 0;
  for (const c of r.connections) {
    const px = x(t(c)), py = y + 14 + h - c.open / top * h;
    path += path ? `H${px}V${py}` : `M${px} ${py}`;
    last = px;
  }
  if (x(end) > last) path += `H${last = x(end)}`;
  const base = y + 14 + h;
  s.append(svg("path", { class: "area", d: `${path}V${base}H${x(t(r.connections[0]))}Z` }), svg("path", { class: "curve", d: path }),
    svg("text", { x: x(t(r.connections[0])), y: y + 10 }, `connections open on generation ${r.outcome === "serves" ? r.replaced : r.generation}, at most ${top}`),
    svg("text", { x: last + 5, y: base }, String(r.connections[r.connections.length - 1].open)));
}

function renderRecent() {
  const list = [...(state.recent || [])].reverse();
  byId("recent-box").hidden = !list.length;
  byId("recent").replaceChildren(...list.map(u => el("li", { "data-kind": u.kind },
    el("time", { datetime: u.time }, new Date(at(u.time)).toLocaleTimeString(undefined, { hourCycle: "h23" })), el("b", {}, u.program),
    el("span", {}, u.kind + [u.generation && " · generation " + u.generation, u.worker && " · worker " + u.worker, u.pid && " · PID " + u.pid,
      u.signal && " · " + u.signal, u.reason && " · " + u.reason, by(u.asked_by), u.took_ns && " · " + took(u.took_ns)].filter(Boolean).join("")))));
}

// What needs the token.
const token = () => sessionStorage.getItem("token");

function unlockable() {
  byId("unlock").hidden = !state.token || !!token();
  byId("reload-all").hidden = !state.token || !token();
}

function say(text, bad) {
  const e = byId("said");
  e.hidden = false;
  e.className = bad ? "note bad" : "note";
  e.textContent = text;
}

// refusal is the text of an error: {"error", "remedy"}, or plain text.
function refusal(text) {
  try {
    const p = JSON.parse(text);
    return p.error + (p.remedy ? ". " + p.remedy[0].toUpperCase() + p.remedy.slice(1) + "." : "");
  } catch {
    return text;
  }
}

async function reload(program) {
  try {
    const answer = await fetch("reload" + (program ? "?program=" + encodeURIComponent(program) : ""), { method: "POST", headers: { Authorization: "Bearer " + token() } });
    if (answer.status === 401) sessionStorage.removeItem("token");
    const text = (await answer.text()).trim();
    if (!answer.ok) return say(refusal(text), true);
    say("Reload begins: " + JSON.parse(text).tickets.map(t => t.program + " generation " + t.generation).join(", "));
  } catch (err) {
    say("supervisord does not answer: " + err.message, true);
  } finally {
    if (state) render();
  }
}

byId("unlock").addEventListener("click", () => byId("ask").showModal());
byId("reload-all").addEventListener("click", () => reload(""));
byId("ask").addEventListener("close", () => {
  const given = byId("token").value.trim();
  byId("token").value = "";
  if (byId("ask").returnValue === "ok" && given) sessionStorage.setItem("token", given);
  render();
});

function link(what, text) {
  byId("link").dataset.link = what;
  byId("link").textContent = text;
}

addEventListener("resize", () => { if (state) render(); });

const events = new EventSource("events");
events.addEventListener("state", e => {
  state = JSON.parse(e.data);
  skew = at(state.now) - Date.now();
  link("live", "live");
  render();
});
events.addEventListener("error", () => link("lost", state ? "no connection; this is how it was" : "no connection"));

setInterval(() => {
  if (!state || document.hidden) return;
  document.querySelectorAll("time[data-after]").forEach(tickAge);
  for (const p of state.status.programs) {
    const d = state.details[p.name] || { receipts: [] }, r = d.receipts.find(r => r.generation === chosen.get(p.name)) || d.receipts[0];
    const box = document.querySelector(`[data-program="${CSS.escape(p.name)}"] .when svg`);
    if (r && !r.ended && box) box.replaceWith(timeline(p, r));
  }
}, 1000);
