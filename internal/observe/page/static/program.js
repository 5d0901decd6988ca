// The card of one program: what needs a decision first, then what it is doing, then what it has done.

import { age, at, by, bytes, count, el, folded, now, outcomeWord, percent, plain, span, stamp, took, when, zoneName } from "./dom.js";
import { failedDeploy, lastDeploy, late, missing, needsPerson, role, stuck, underWay, verdict } from "./verdict.js";
import { figure } from "./timeline.js";
import { kinds, sparkline, sum } from "./history.js";

const few = 12;         // workers of a generation that are shown one by one
export const fewPrograms = 6;  // programs that are cards, and unfolded, though nothing happens

// card makes the card. view is what the reader has chosen, and whether there is a token.
export function card(p, receipts, view) {
  const v = verdict(p), shown = receipts.find(r => r.generation === view.chosen.get(p.name)), live = underWay(receipts), id = "program-" + p.name;
  const many = view.state.status.programs.length > fewPrograms, opened = many && view.opened.has(p.name);
  const open = !many || opened, noted = notes(p, view), history = sparks(p);
  return el("article", { class: "card " + v.level, id, "data-key": id, "data-program": p.name, "data-state": p.state, "data-level": v.level, "aria-labelledby": id + "-name" },
    el("header", {}, el("h2", { id: id + "-name" }, p.name), el("span", { class: "badge " + v.level }, v.word),
      el("p", { class: "summary" }, noted.some(n => n.dataset.note === "canary") ? "" : p.summary.replace(p.name + " " + p.state, "").replace(/^, /, "")), buttons(p, view, opened)),
    noted, live ? figure(p, live) : null, facts(p, history), history,
    folded("more-" + p.name, open, "Workers, listeners, reloads",
      el("h3", {}, "Workers"), p.generations.map(g => generation(p, g)),
      p.generations.length ? null : el("p", { class: "summary" }, p.stop?.asked_by ? "none: stopped by " + p.stop.asked_by : "none"),
      listeners(p), reloads(p, receipts, shown, view), shown && shown !== live ? figure(p, shown) : null, output(p, view)));
}

// button asks for a change; see actions.js.
export function button(what, label, p, generation, extra) {
  return el("button", { type: "button", class: extra, "data-key": what + "-" + p.name, "data-do": what, "data-program": p.name, "data-generation": generation,
    "aria-label": label + " " + p.name }, label);
}

// figuresOf are the numbers of a program that have a history.
function figuresOf(p) {
  const workers = p.generations.flatMap(g => g.workers), says = { connections: String, cpu_percent: cpu, memory: bytes }, names = { connections: "connections", cpu_percent: "CPU", memory: "memory" };
  return kinds.map(kind => ({ kind, what: names[kind], say: says[kind], value: sum(workers, kind) }));
}

// tile is a program in one line. A click makes it a card.
export function tile(p) {
  const v = verdict(p), id = "program-" + p.name, serving = role(p, "serving"), ready = serving?.workers.filter(w => w.state === "ready").length;
  const figures = figuresOf(p).map(f => el("span", { class: "figure " + f.kind, title: f.what }, f.value === null ? "–" : [f.say(f.value), sparkline(p.name, f.kind, f.what, f.say, 34, 18)]));
  return el("button", { type: "button", class: "tile " + v.level, id, "data-key": "tile-" + p.name, "data-program": p.name, "data-state": p.state, "data-level": v.level, "data-do": "open",
    "aria-expanded": "false", title: p.summary }, el("b", {}, p.name),
    v.level === "ok" ? null : el("span", { class: "badge " + v.level }, v.word), serving && ready < serving.slots ? el("small", {}, `${ready} of ${serving.slots}`) : null, v.level === "ok" ? figures : figures.slice(0, 1));
}

// sparks are the numbers of a card with their history.
function sparks(p) {
  const list = figuresOf(p).map(f => [f, f.value !== null && sparkline(p.name, f.kind, f.what, f.say, 150, 26)]).filter(([, line]) => line);
  return list.length ? el("ul", { class: "sparks" }, list.map(([f, line]) => el("li", {}, line, el("span", {}, `${f.say(f.value)} ${f.what === "connections" && f.value === 1 ? "connection" : f.what}`)))) : null;
}

function buttons(p, view, opened) {
  const kept = p.generations.find(g => g.kept_until);
  return el("div", { class: "buttons" },
    view.token && kept && !role(p, "trial") ? button("rollback", "Roll back", p, role(p, "serving")?.number) : null,
    view.unlocked && p.state === "down" ? button("start", "Start", p) : null,
    view.unlocked ? button("reload", "Reload", p) : null,
    view.unlocked && role(p, "serving") ? [button("restart", "Restart", p, role(p, "serving").number), button("scale", "Scale", p)] : null,
    view.unlocked && !p.paused && p.listeners.length ? button("pause", "Pause", p) : null,
    view.unlocked && p.state !== "down" ? button("stop", "Stop", p, role(p, "serving")?.number) : null,
    el("a", { class: "button", href: "#events", "data-key": "events-" + p.name, "data-do": "events", "data-program": p.name, "aria-label": "Events of " + p.name }, "Events"),
    opened ? button("close", "Close", p) : null);
}

// note is a box about something that a person has to know, or decide.
const note = (level, kind, ...content) => el("div", { class: "note-box " + level, "data-note": kind, "data-key": "note-" + kind }, ...content);
const strong = text => el("strong", {}, text);
const lines = tail => tail?.length ? el("pre", {}, plain(tail.slice(-8).join("\n"))) : null;

function notes(p, view) {
  return [failure(p), crashing(p), ...stuck(p).map(deaf), canary(p, view), ...late(p).map(drainsLate), paused(p, view), kept(p), due(p), lost(p)].filter(Boolean);
}

function failure(p) {
  const r = failedDeploy(p), f = r?.failure || {}, serving = role(p, "serving");
  if (!r) return p.state === "waiting" && !p.awaits ? note("bad", "failure", strong("Nothing serves"), retry(p)) : null;
  return note("bad", "failure", strong(`Generation ${r.generation} failed`), ` at ${f.step || "?"}: ${f.reason || "?"}. `,
    !serving ? "Nothing serves." : r.gap === "open" || r.gap === "lasts" && !serving.workers.some(w => w.state === "ready")
      ? `Nothing serves until generation ${serving.number} is ready again.` : `Generation ${serving.number} ${r.gap ? "serves again" : "still serves"}.`, retry(p), lines(f.tail),
    el("small", {}, age(r.decided, "", " ago"), by(r.asked_by)));
}

const retry = p => p.retry_at ? ` Next try in ${span(at(p.retry_at) - now())}.` : null;

function crashing(p) {
  const n = missing(p);
  if (!n || !role(p, "serving")) return null;
  return note(verdict(p).level === "bad" ? "bad" : "warn", "crashing", strong(`${n} of ${count(role(p, "serving").slots, "worker")} missing`), ".", retry(p), p.last_crash ? crash(p.last_crash) : null);
}

const crash = c => el("div", {}, age(c.at, "Last crash ", " ago"), `: worker ${c.worker}, ${c.reason}`, lines(c.tail));

function canary(p, view) {
  const g = p.generations.find(g => g.role === "trial" && g.held), serving = role(p, "serving");
  if (!g) return null;
  const share = g.share > 0 && g.share < 10000 ? ` It has ${percent(g.share)} of the new connections; generation ${serving?.number} has the rest.` : "";
  return note("warn", "canary", strong(`Generation ${g.number} is a canary`), ", and well." + share + " " + (g.held_until
    ? "It is promoted by itself in " + span(at(g.held_until) - now()) + "." : "Promote it, or abort it."),
    view.token ? el("div", { class: "buttons" }, button("promote", "Promote", p, g.number, "main"), button("abort", "Abort", p, g.number))
      : el("div", {}, "On the server: ", el("code", {}, "supervisord promote " + p.name), " or ", el("code", {}, "supervisord abort " + p.name)));
}

function drainsLate({ generation, workers }) {
  const last = workers.reduce((a, b) => at(a.deadline) > at(b.deadline) ? a : b), left = span(at(last.deadline) - now());
  return note("warn", "late-" + generation.number, strong(`Generation ${generation.number} drains slowly`),
    `: ${count(workers.length, "worker")} after ${span(now() - at(last.since))}, with ${left} to go. Then ${last.state === "finishing" ? "TERM" : "KILL"}.`,
    generation.in_hand ? " Unfinished: " + inHand(generation.in_hand) + "." : null);
}

const deaf = l => note("bad", "stuck-" + l.name, strong("Nobody accepts"), ` from listener ${l.name}: ${count(l.queue.waiting, "connection")} waiting, one for ${took(l.queue.stuck_ns)}.`);

function paused(p, view) {
  if (!p.paused) return null;
  return note("warn", "paused", strong("Paused"), ` for ${span(at(p.paused.until) - now())} more${by(p.paused.asked_by)}: new connections wait.`,
    view.token ? el("div", { class: "buttons" }, button("resume", "Resume", p, null, "main")) : el("div", {}, "On the server: ", el("code", {}, "supervisord resume " + p.name)));
}

function kept(p) {
  const g = p.generations.find(g => g.kept_until);
  return g ? note("info", "kept", strong(`Generation ${g.number} is kept`), ` for ${span(at(g.kept_until) - now())} more: a rollback returns to it at once.`) : null;
}

const due = p => p.due ? note("info", "due", `A reload waits (${p.due.reason}${by(p.due.asked_by)}): ${p.due.waits_for}.`) : null;
const lost = p => p.lost_lines ? note("info", "lost", count(p.lost_lines, "line") + " of output could not be written to a log file; the log says why.") : null;

// facts is the line for a program that is well: what it uses, since when, and how often it crashed.
function facts(p, history) {
  const workers = p.generations.flatMap(g => g.workers), deploy = lastDeploy(p), serving = role(p, "serving"), parts = [];
  if (workers.length) parts.push(count(workers.length, "worker") + (history ? "" : " · " + use(workers)));
  if (p.restarts) parts.push(el("span", { class: "restarts" }, count(p.restarts, "restart")));
  if (p.last_crash && !missing(p)) parts.push(el("span", { class: "crash" }, age(p.last_crash.at, "last crash ", " ago"), ` (worker ${p.last_crash.worker}: ${p.last_crash.reason})`));
  if (serving) parts.push(el("span", {}, `generation ${serving.number} since `, age(serving.served || serving.began),
    deploy ? [deploy.took_ns ? ", ready in " + took(deploy.took_ns) : "", by(deploy.asked_by)].join("") : ""));
  return el("p", { class: "facts" }, parts.flatMap((part, i) => i ? [" · ", part] : [part]));
}

// use sums what workers use.
function use(workers) {
  const sum = key => workers.reduce((n, w) => n + (w[key] ?? 0), 0), known = key => workers.some(w => w[key] !== null && w[key] !== undefined);
  return [known("cpu_percent") ? cpu(sum("cpu_percent")) : "? %", known("memory") ? bytes(sum("memory")) : "?", known("connections") ? count(sum("connections"), "connection") : "? connections"].join(" · ");
}
const cpu = n => n.toLocaleString("en", { maximumFractionDigits: 1 }) + " %";

function generation(p, g) {
  const workers = [...g.workers].sort((a, b) => a.slot - b.slot), well = w => ["ready", "kept"].includes(w.state);
  const apart = workers.length > few ? workers.filter(w => !well(w)).slice(0, few) : workers, rest = workers.filter(w => !apart.includes(w));
  const states = [...new Set(rest.map(w => w.state))].map(s => rest.filter(w => w.state === s).length + " " + s).join(", ");
  return el("div", { "data-key": "generation-" + g.number, "data-generation": g.number, "data-role": g.role },
    el("p", { class: "gen" }, el("b", { class: g.role }, g.role === "trial" ? "new" : g.role), ` generation ${g.number} · ${g.reason}${by(g.asked_by)} · `, age(g.served || g.began),
      g.held ? " · canary, held" : "", g.workers.length < g.slots ? ` · ${g.workers.length} of ${count(g.slots, "worker")}` : "",
      g.share > 0 && g.share < 10000 ? el("span", { class: "share" }, " · " + percent(g.share) + " of new connections") : null,
      g.in_hand ? el("span", { class: "in-hand", title: "its connections; it gets no new ones, and is told to stop when only idle ones are left (drain.silence, drain.timeout)" }, " · " + inHand(g.in_hand)) : null),
    el("ul", { class: "workers" }, apart.map(worker)),
    rest.length ? folded(`workers-${p.name}-${g.number}`, false, `${count(rest.length, apart.length ? "more worker" : "worker")}: ${states} · ${use(rest)}`,
      el("ul", { class: "workers" }, rest.map(worker))) : null);
}

// inHand lists what a generation that gets no new connections has of the old ones.
export function inHand(l) {
  const parts = [["queued", "not accepted"], ["handshakes", "being opened"], ["unread", "unread"], ["answering", "being answered"], ["active", "active within " + span((l.within_ns || 0) / 1e6)], ["idle", "idle"]];
  return parts.filter(([key]) => l[key]).map(([key, what]) => l[key] + " " + what).join(", ") || "nothing unfinished";
}
const busy = l => l ? l.queued + l.handshakes + l.unread + l.answering + l.active : 0;

function worker(w) {
  return el("li", { class: w.state, "data-key": "worker-" + w.number, "data-pid": w.pid }, el("b", {}, w.state), el("span", {}, ` slot ${w.slot} · PID ${w.pid || "–"}`),
    el("small", { title: "CPU, memory and open connections of its processes" + (w.connections_error ? "; connections: " + w.connections_error : "") },
      age(w.since), ` · ${w.cpu_percent === null || w.cpu_percent === undefined ? "? %" : cpu(w.cpu_percent)} · ${bytes(w.memory)} · ${count(w.connections ?? "?", "connection")}`),
    w.seen || w.left || w.text ? el("small", {}, w.seen || (w.left ? "its first process has ended; left: " + w.left : w.text)) : null);
}

function listeners(p) {
  if (!p.listeners.length) return [];
  return [el("h3", {}, "Listeners"), el("ul", { class: "listeners" }, p.listeners.map(l => {
    const q = l.queue, text = q ? `${q.waiting} of ${q.limit} waiting` : "";
    const path = l.path?.problem || (l.path ? `its path was put back ${l.path.restored} times: ${l.path.damage}` : "");
    return el("li", { "data-key": "listener-" + l.name, "data-listener": l.name, "data-handover": l.handover }, el("b", {}, l.name), el("code", {}, l.address === l.name ? "" : l.address, lanes(l), path ? el("small", {}, " · " + path) : null),
      l.closed ? el("span", { title: "nothing serves; when_down = " + l.when_down }, "closed")
        : q ? el("span", { title: "connections that wait to be accepted" }, el("meter", { min: 0, max: q.limit, high: q.limit * .7, value: q.waiting, "aria-label": "connections that wait to be accepted by " + l.name }), " " + text) : "");
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

const head = ["Generation", "Outcome", "When", "By", "Took", "Start to ready", "Side by side", "Unfinished for", "Drained for", "Left over", "Reset", "Killed"];
const meanings = {
  Took: "from the request to the decision: serves, or failed",
  "Start to ready": "from the start of the first worker until all are ready",
  "Side by side": "how long workers of both generations ran",
  "Unfinished for": "how long the old generation still had requests after its last new connection",
  "Drained for": "from the decision until the last old worker ended",
  "Left over": "connections with an unfinished request when drain.timeout was over",
  Reset: "connections that the kernel reset because nobody had accepted them",
  Killed: "workers that did not end in time",
};
const texts = 4; // the first columns are texts, the rest numbers

function reloads(p, receipts, shown, view) {
  if (!receipts.length) return [];
  const past = view.past.get(p.name);
  return [el("h3", {}, "Reloads"), el("div", { class: "scroll", role: "region", tabindex: 0, "aria-label": "Reloads of " + p.name },
    el("table", {}, el("thead", {}, el("tr", {}, head.map((h, i) => el("th", { scope: "col", class: i >= texts && "n" }, h)))),
      el("tbody", {}, receipts.map(r => receipt(p, r, r === shown))))),
    folded("columns-" + p.name, false, "What the columns mean", el("dl", {}, Object.entries(meanings).flatMap(([h, text]) => [el("dt", {}, h), el("dd", {}, text)]))),
    past ? older(p, past, receipts) : button("history", "Older reloads", p, null, "quiet")];
}

function receipt(p, r, isShown) {
  const title = r.reason + by(r.asked_by) + (r.rolled_back ? "; rolled back" + by(r.rolled_back_by) : "") + (r.left ? "; unfinished at drain.timeout: " + inHand(r.left) : "");
  return el("tr", { "data-key": "receipt-" + r.generation, "data-receipt": r.generation, "data-outcome": r.outcome, title, class: isShown && "shown" },
    el("td", {}, el("button", { type: "button", class: "link", "data-key": `choose-${p.name}-${r.generation}`, "data-do": "choose", "data-program": p.name, "data-generation": r.generation,
      "aria-pressed": isShown ? "true" : "false", title: "show this reload as a picture" }, (r.replaced ? r.replaced + " → " : "") + r.generation)),
    el("td", { class: "outcome " + r.outcome }, outcomeWord(r)),
    el("td", {}, age(r.began || r.decided, "", " ago")), el("td", {}, r.asked_by || r.reason),
    figures(r).map(v => el("td", { class: "n" }, String(v))));
}

function figures(r) {
  return [took(r.took_ns), took(r.spawn_to_ready_ns), took(r.overlap_ns), took(r.quiet_ns), took(r.drain_ns), busy(r.left), r.reset || 0, r.killed];
}

// older lists reloads that the state does not have any more.
function older(p, all, receipts) {
  if (all.error) return el("p", { class: "summary" }, all.error);
  const past = all.filter(r => !receipts.some(s => s.generation === r.generation));
  if (!past.length) return el("p", { class: "summary" }, "No older reloads are known.");
  return el("div", { class: "past", "data-past": p.name, tabindex: 0, role: "region", "aria-label": "Older reloads of " + p.name }, el("ol", {}, past.map(r => el("li", { class: r.failure ? "failed" : null, title: stamp(at(r.decided)) + " " + zoneName },
    `${when(at(r.decided))} · ${r.replaced ? r.replaced + " → " : ""}${r.generation} · ${outcomeWord(r)} after ${took(r.took_ns)}` +
    `${by(r.asked_by || r.reason)}${r.failure ? ` · ${r.failure.step}: ${r.failure.reason}` : ""}`))));
}

// output shows the last lines that the workers wrote, to the holder of the token.
function output(p, view) {
  if (!view.unlocked) return null;
  const have = view.output.get(p.name);
  return folded("output-" + p.name, false, "Output", have ? el("pre", { class: "output", tabindex: 0, role: "region", "aria-label": "Output of " + p.name }, have) : el("p", { class: "summary" }, "…"));
}
