// What needs the token: every change asks before it acts.

import { byId, count, el, percent } from "./dom.js";

export const token = () => sessionStorage.getItem("token");

// The questions: title, what follows from yes, the word on the button, and what else there is to choose. p is the program, g the number of
// the generation that the decision is about.
const other = (p, role) => p.generations.find(g => g.role === role)?.number;
const questions = {
  reload: p => [`Reload ${p.name}?`, `supervisord reads the configuration and starts generation ${p.newest_generation + 1}, which gets the new connections when it is ready.` +
    (other(p, "serving") ? ` If it fails, generation ${other(p, "serving")} keeps serving.` : ""), "Reload"],
  promote: (p, g) => [`Promote generation ${g} of ${p.name}?`, `With all of the new connections it takes the place of generation ${other(p, "serving")}, which finishes its requests.`, "Promote", shares(p, g)],
  abort: (p, g) => [`Abort generation ${g} of ${p.name}?`, `Its workers are told to stop; generation ${other(p, "serving")} gets all new connections.`, "Abort"],
  rollback: p => [`Roll ${p.name} back to generation ${p.generations.find(g => g.kept_until)?.number}?`, `It gets the new connections at once; generation ${other(p, "serving")} gets no more. No process starts.`, "Roll back"],
  pause: p => [`Pause ${p.name}?`, "New connections wait, unanswered, until you resume or the time is over. Requests that are under way are finished.", "Pause",
    { label: "For", name: "for", options: [["10s", "10 seconds"], ["30s", "30 seconds"], ["1m", "1 minute"], ["2m", "2 minutes"]] }],
  start: p => [`Start ${p.name}?`, "supervisord starts it with the configuration that it had when it was stopped.", "Start"],
  stop: p => [`Stop ${p.name}?`, "Its workers finish their requests and end. Nothing serves until somebody starts it again." + waits(p), "Stop"],
  restart: p => [`Restart ${p.name}?`, "It stops, and then starts: for that time nothing serves." + waits(p) + " Reload replaces the workers without a gap.", "Restart"],
  scale: p => [`Scale ${p.name}?`, `It has ${count(workers(p), "worker")}. A worker that is too many finishes its requests first.`, "Scale",
    { label: "Workers", name: "workers", type: "number", min: 1, max: 10000, value: workers(p) }],
  resume: p => [`Resume ${p.name}?`, "The clients that wait are accepted now.", "Resume"],
};

const workers = p => p.generations.find(g => g.role === "serving")?.slots || 0;

// waits says what becomes of the clients while nothing serves.
function waits(p) {
  const ways = [...new Set(p.listeners.map(l => l.when_down))];
  return ways.length ? ` New connections: ${ways.map(w => w === "refuse" ? "refused" : w.replace("queue", "wait")).join(", ")}.` : "";
}

// shares are what a canary can get, if it was asked for as a share and not as a number of workers.
function shares(p, number) {
  const has = p.reloads.find(r => r.generation === number)?.share;
  if (!has) return null;
  const steps = [100, 500, 1000, 2500, 5000, 7500].filter(s => s !== has);
  return { label: "Of the new connections", name: "canary", options: [["", "all: the canary is over"], ...steps.map(s => [s / 100 + "%", percent(s) + " (now " + percent(has) + ")"])] };
}

// ask resolves to null, or to what was chosen: {} or {name: value}.
function ask(title, text, yes, choice) {
  const form = el("form", { method: "dialog" }, el("h2", { id: "question-title" }, title), el("p", {}, text),
    choice ? el("label", {}, choice.label + " ", choice.options
      ? el("select", { name: choice.name, autofocus: true }, choice.options.map(([value, name]) => el("option", { value }, name)))
      : el("input", { type: "password", autocomplete: "off", spellcheck: "false", required: true, autofocus: true, ...choice, label: null })) : null,
    el("p", { class: "buttons" }, el("button", { type: "button", autofocus: !choice }, "Cancel"), el("button", { value: "yes", class: "main" }, yes)));
  const dialog = el("dialog", { id: "question", "aria-labelledby": "question-title" }, form);
  form.querySelector("button[type=button]").addEventListener("click", () => dialog.close());
  document.body.append(dialog);
  dialog.showModal();
  return new Promise(resolve => dialog.addEventListener("close", () => {
    dialog.remove();
    resolve(dialog.returnValue === "yes" ? Object.fromEntries(new FormData(form)) : null);
  }));
}

export function say(text, bad) {
  const e = byId("said");
  e.hidden = !text;
  e.className = bad ? "note-box bad" : "note-box info";
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

// withToken asks with the token. It returns the answer, or what is wrong.
export async function withToken(method, path, body, given) {
  try {
    const answer = await fetch(path, { method, body: body && JSON.stringify(body), headers: { Authorization: "Bearer " + (given || token()) } });
    const text = (await answer.text()).trim();
    if (answer.status === 401) lock();
    return answer.ok ? { text } : { error: refusal(text) };
  } catch (err) {
    return { error: "supervisord does not answer: " + err.message };
  }
}

// request is withToken for what a person has asked for: it says what is wrong, and then returns null.
async function request(path, body, given) {
  const { text, error } = await withToken("POST", path, body, given);
  if (error === undefined) return text;
  say(error, true);
  return null;
}

// unlock asks for the token, and keeps it if it is right. It returns whether there is one.
export async function unlock() {
  if (token()) return true;
  const given = await ask("Unlock", "The token is in the file that http_token_file names. This tab remembers it until you lock the page or close the tab.", "Unlock", { label: "Token", name: "token" });
  if (!given || await request("unlock", null, given.token.trim()) === null) return false;
  sessionStorage.setItem("token", given.token.trim());
  say("");
  return true;
}

export function lock() { sessionStorage.removeItem("token"); }

// change asks, and then does what the button says.
export async function change(what, p, generation) {
  if (!await unlock()) return;
  const chosen = await ask(...questions[what](p, generation));
  if (chosen && what === "reload") return send(what, "v1/reload", { programs: [p.name], reason });
  if (chosen) await send(what, `v1/programs/${encodeURIComponent(p.name)}/${what}` + (generation ? "?generation=" + generation : ""), bodies[what]?.(chosen));
}

export async function reloadAll(programs) {
  if (programs.length && await ask(`Reload all ${count(programs.length, "program")}?`, programs.map(p => p.name).join(", ") + ": supervisord reads the configuration and starts a new generation of each.", "Reload")) await send("reload", "v1/reload", { reason });
}

const done = { reload: "Reload begins", promote: "Promoted", abort: "Aborted", rollback: "Rolled back", pause: "Paused", resume: "Resumed",
  start: "Starts", stop: "Stops", restart: "Restarts", scale: "Scaled" };

// What is sent with a request, of what was chosen: see docs/openapi.yaml.
const reason = "the page";
const bodies = {
  promote: chosen => chosen.canary ? { canary: chosen.canary } : {}, abort: () => ({ reason }),
  pause: chosen => ({ for: chosen.for }), scale: chosen => ({ workers: Number(chosen.workers) }),
};

async function send(what, path, body) {
  const text = await request(path, body);
  if (text !== null) say(`${done[what]}: ` + JSON.parse(text).tickets.map(t => t.program + " generation " + t.generation).join(", "));
}
