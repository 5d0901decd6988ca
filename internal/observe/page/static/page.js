// The page shows what GET events sends: each event is the whole state. Clicks are handled here, by what data-do says, so that an element
// that is brought up to date needs no handler of its own.

import { age, at, by, byId, count, el, like, now, plain, setClock, show, stamp, tick, took, when, zoneName } from "./dom.js";
import { inOrder, needsPerson, role, underWay, verdict, worst } from "./verdict.js";
import { card, fewPrograms, tile } from "./program.js";
import { record } from "./history.js";
import { change, lock, reloadAll, say, token, unlock, withToken } from "./actions.js";

const view = { state: null, token: false, unlocked: false, chosen: new Map(), past: new Map(), output: new Map(), opened: new Set() };
const receiptsOf = p => [...p.reloads].reverse().slice(0, 5);
// What needs a person is a card, and so is what the reader has opened; the rest are tiles, if there are many.
const asCard = p => needsPerson(verdict(p)) || role(p, "trial")?.held || view.opened.has(p.name) || view.state.status.programs.length <= fewPrograms;
const element = p => asCard(p) ? card(p, receiptsOf(p), view) : tile(p);
let live = false;

function render() {
  if (!view.state) return;
  const st = view.state.status;
  view.token = view.state.token;
  view.unlocked = view.token && Boolean(token());
  renderHead(st);
  renderPrograms(st);
  renderEvents(st);
}

function renderPrograms(st) {
  byId("find").hidden = st.programs.length <= fewPrograms;
  const wanted = byId("find").hidden ? "" : byId("search").value.trim().toLowerCase(), found = st.programs.filter(p => [p.name, verdict(p).word].join(" ").toLowerCase().includes(wanted));
  show(byId("programs"), found.length || !wanted ? inOrder(found).map(element) : el("p", { class: "summary" }, `No program has "${wanted}" in its name or its state.`));
}

function renderHead(st) {
  const verdicts = st.programs.map(p => ({ p, ...verdict(p) })), bad = verdicts.filter(needsPerson), host = st.host || location.hostname;
  document.title = (live ? "" : "(offline) ") + (bad.length ? `(${bad.length}) ` : "") + host + " · supervisord";
  byId("host").textContent = host;
  show(byId("about"), "supervisord " + st.version + " · PID " + st.pid + " · ", age(st.started, "up "), " · ", el("code", {}, st.config), st.stopping ? " · stopping" : "");
  const icon = { bad: "icon-bad.svg", warn: "icon-warn.svg" }[worst(verdicts)] || "icon.svg";
  byId("icon").setAttribute("href", live ? icon : "icon-offline.svg");
  byId("logo").setAttribute("src", live ? icon : "icon-offline.svg");
  byId("upgrade").hidden = !st.upgrade_failed;
  byId("upgrade").textContent = "The last upgrade failed: " + st.upgrade_failed;
  renderClock();
  show(byId("overview"), ...overview(verdicts));
  byId("unlock").hidden = !view.token || view.unlocked;
  byId("lock").hidden = byId("reload-all").hidden = !view.unlocked;
}

const renderClock = () => { byId("clock").textContent = stamp(now()) + " " + zoneName; };

// overview is "3 programs: 1 deploy failed (web), 2 up", the worst first.
function overview(verdicts) {
  const levels = ["bad", "warn", "busy", "idle", "ok"], words = [...new Set(verdicts.toSorted((a, b) => levels.indexOf(a.level) - levels.indexOf(b.level)).map(v => v.word))];
  const parts = words.map(word => {
    const these = verdicts.filter(v => v.word === word), links = these.flatMap((v, i) => [i ? ", " : " (", el("a", { href: "#program-" + v.p.name }, v.p.name)]);
    return el("span", { class: "count " + these[0].level }, these.length + " " + word, needsPerson(these[0]) ? [...links, ")"] : []);
  });
  return [count(verdicts.length, "program") + ": ", ...parts.flatMap((part, i) => i ? [", ", part] : [part])];
}

function renderEvents(st) {
  const of = byId("of"), options = [el("option", { value: "" }, "all programs"), ...st.programs.map(p => el("option", { value: p.name }, p.name))];
  show(of, options);
  const list = (view.state.recent || []).filter(u => (!of.value || u.program === of.value) && (failure(u) || !byId("failures").checked)).reverse();
  show(byId("recent"), list.length ? list.map(event) : el("li", { class: "summary" }, "none since supervisord started, or none that it remembers"));
}

function event(u) {
  return el("li", { "data-id": u.id, class: failure(u) ? "failed" : null }, el("time", { datetime: u.time, title: stamp(at(u.time)) + " " + zoneName }, when(at(u.time))), el("b", {}, u.program), el("span", {}, u.text));
}

const failure = u => u.level === "warn" || u.level === "error";

// What the buttons do, by data-do.
const does = {
  unlock: () => unlock(),
  lock: () => { lock(); view.output.clear(); say("Locked."); },
  "reload-all": () => reloadAll(view.state.status.programs),
  choose: (p, generation) => view.chosen.get(p.name) === generation ? view.chosen.delete(p.name) : view.chosen.set(p.name, generation),
  events: p => { byId("of").value = p.name; },
  open: p => view.opened.add(p.name),
  close: p => view.opened.delete(p.name),
  history: async p => view.past.set(p.name, await older(p.name)),
};

document.addEventListener("click", async e => {
  const button = e.target.closest("[data-do]");
  if (!button || !view.state) return;
  const p = view.state.status.programs.find(p => p.name === button.dataset.program), generation = Number(button.dataset.generation) || undefined;
  await (does[button.dataset.do] ? does[button.dataset.do](p, generation) : change(button.dataset.do, p, generation));
  render();
  if (["open", "close"].includes(button.dataset.do)) document.querySelector(`#program-${CSS.escape(p.name)} [data-do=close], button#program-${CSS.escape(p.name)}`)?.focus();
});
byId("search").addEventListener("input", render);
document.addEventListener("keydown", e => {
  if (e.key !== "/" || byId("find").hidden || e.ctrlKey || e.metaKey || e.target.closest("input, select, dialog")) return;
  e.preventDefault();
  byId("search").focus();
});
for (const id of ["of", "failures"]) byId(id).addEventListener("change", render);
addEventListener("resize", render);

// older asks for the reloads that are not in the state any more.
async function older(program) {
  const answer = await fetch("history?" + new URLSearchParams({ program })).catch(err => ({ text: () => err.message })), text = await answer.text();
  return answer.ok ? JSON.parse(text) : Object.assign([], { error: text });
}

// readOutput reads what the workers of unfolded programs wrote. It is asked for when something has changed, and at most once at a time.
let reading = false;
async function readOutput() {
  const open = [...document.querySelectorAll("details[open][data-key^=output-]")];
  if (reading || !open.length || !view.unlocked) return;
  reading = true;
  for (const d of open) {
    const program = d.dataset.key.slice("output-".length), { text, error } = await withToken("GET", "logs?" + new URLSearchParams({ program }));
    view.output.set(program, error || JSON.parse(text).map(l => `${when(at(l.time))} ${l.pid} ${plain(l.text)}`).join("\n") || "nothing yet");
  }
  reading = false;
  render();
}
document.addEventListener("toggle", readOutput, true);

function link(what, text) {
  live = what === "live";
  byId("link").dataset.link = what;
  byId("link").textContent = text;
  render();
}

const events = new EventSource("events");
events.addEventListener("state", e => {
  view.state = JSON.parse(e.data);
  setClock(view.state.now);
  record(view.state.status.programs, at(view.state.now));
  link("live", "live");
  readOutput();
});
events.addEventListener("error", () => link("lost", view.state ? "no connection; this is how it was" : "no connection"));

// Once a second the clock and all ages advance, and the cards of programs with which something is going on.
setInterval(() => {
  if (!view.state || document.hidden) return;
  renderClock();
  document.querySelectorAll("time[data-after]").forEach(tick);
  for (const p of view.state.status.programs) {
    const shown = byId("program-" + p.name), fresh = shown && (shown.dataset.level !== "ok" || underWay(receiptsOf(p))) && element(p);
    if (fresh && fresh.nodeName !== shown.nodeName) return render(); // it has been under way for too long
    if (fresh) like(shown, fresh);
  }
}, 1000);
