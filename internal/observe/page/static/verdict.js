// What the state of a program means for the person who looks at it.

import { at, now } from "./dom.js";

const failed = ["not_prepared", "not_ready", "worker"]; // outcomes of a new generation that failed

// role returns the generation that has this role.
export const role = (p, name) => p.generations.find(g => g.role === name);

// failedDeploy returns the record of the last deploy if that failed and nothing newer has begun: a newer trial, version or decision makes an
// earlier failure history.
export function failedDeploy(p) {
  const records = p.reloads.filter(r => r.outcome !== "superseded");
  let last = records.pop();
  if (last?.outcome === "pending" && p.failures) last = records.pop(); // nothing serves, and the next try is under way
  return last && failed.includes(last.outcome) ? last : null;
}

// lastDeploy returns the record of what serves now.
export const lastDeploy = p => p.reloads.filter(r => r.generation === role(p, "serving")?.number).pop();

// late returns the draining workers for whom more than half of the time is over, by generation.
export function late(p) {
  const isLate = w => w.deadline && w.state !== "kept" && now() - at(w.since) > (at(w.deadline) - at(w.since)) / 2;
  return p.generations.filter(g => g.role === "draining").map(g => ({ generation: g, workers: g.workers.filter(isLate) })).filter(l => l.workers.length);
}

// missing is how many workers of the serving generation are not there while the next try has a time.
export function missing(p) {
  const g = role(p, "serving");
  return g && p.retry_at && !p.due ? Math.max(0, g.slots - g.workers.filter(w => w.state !== "starting").length) : 0;
}

// stuck returns the listeners from which nobody accepts, although the program serves.
export const stuck = p => p.listeners.filter(l => l.queue?.stuck_ns);

// verdict is a word for a program, and a level: "bad" and "warn" need a person, "busy" is under way, "idle" was wanted, "ok" is well.
export function verdict(p) {
  const canary = p.generations.find(g => g.role === "trial" && g.held), serving = role(p, "serving");
  const serves = serving && serving.workers.some(w => ["ready", "soaking", "leaving"].includes(w.state));
  if (p.awaits) return { level: "busy", word: "waits for " + p.awaits.join(", ") };
  if (p.state === "waiting" || p.state === "starting" && p.failures) return { level: "bad", word: "failing" };
  if (failedDeploy(p)) return { level: "bad", word: "deploy failed" };
  if (missing(p)) return { level: serves ? "warn" : "bad", word: "crashing" };
  if (canary && !canary.held_until) return { level: "warn", word: "canary held" };
  if (p.paused) return { level: "warn", word: "paused" };
  if (stuck(p).length) return { level: "bad", word: "not accepting" };
  if (late(p).length) return { level: "warn", word: "draining late" };
  if (p.state === "down") return { level: "idle", word: p.stop?.asked_by ? "stopped" : "down" };
  if (p.state === "up") return { level: "ok", word: "up" };
  return { level: "busy", word: canary ? "canary" : p.state };
}

const levels = ["bad", "warn", "busy", "idle", "ok"];
export const needsPerson = v => v.level === "bad" || v.level === "warn";
export const worst = verdicts => levels.find(l => verdicts.some(v => v.level === l)) || "ok";

// inOrder puts what needs a person first; the rest keeps the order of the names, so that a deploy moves nothing.
export function inOrder(programs) {
  const rank = p => ["bad", "warn"].indexOf(verdict(p).level);
  return programs.map(p => ({ p, rank: rank(p) < 0 ? 2 : rank(p) })).sort((a, b) => a.rank - b.rank || (a.p.name < b.p.name ? -1 : 1)).map(x => x.p);
}

// newest returns the receipt to draw without being asked: of a reload that is under way, or ended a moment ago.
const moment = 60e3;
export const underWay = receipts => receipts.find(r => !r.ended) || (receipts[0] && now() - at(receipts[0].ended) < moment ? receipts[0] : null);
