// What each program used in the last ten minutes. The tab keeps it, because supervisord measures only when somebody looks. It
// survives a reload of the page; a new tab begins with nothing.

import { svg } from "./dom.js";

const length = 600e3, each = 5e3; // ms
const series = new Map(Object.entries(restored())); // by program: [time, connections, CPU, memory], oldest first
export const kinds = ["connections", "cpu_percent", "memory"];

function restored() {
  try {
    return JSON.parse(sessionStorage.getItem("history")) || {};
  } catch {
    return {};
  } finally {
    sessionStorage.removeItem("history");
  }
}
addEventListener("pagehide", () => sessionStorage.setItem("history", JSON.stringify(Object.fromEntries(series))));

// sum returns what workers use of a kind, or null if that is not known of any.
export function sum(workers, kind) {
  const known = workers.map(w => w[kind]).filter(n => n !== null && n !== undefined);
  return known.length ? known.reduce((a, b) => a + b, 0) : null;
}

// record adds what programs use at time t, in ms.
export function record(programs, t) {
  for (const name of series.keys()) if (!programs.some(p => p.name === name)) series.delete(name);
  for (const p of programs) {
    const workers = p.generations.flatMap(g => g.workers);
    const list = (series.get(p.name) || []).filter(s => s[0] > t - length && s[0] <= t); // later ones: the clock was set back
    if (list.at(-1)?.[0] === t || list.length > 1 && t - list.at(-2)[0] < each) list.pop();
    list.push([t, ...kinds.map(kind => sum(workers, kind))]);
    series.set(p.name, list);
  }
}

// sparkline draws a kind over the last ten minutes: the right edge is now, the upper edge the most there was. It returns null while
// less than two values are known. say formats a value.
export function sparkline(name, kind, what, say, width, height) {
  const list = (series.get(name) || []).map(s => [s[0], s[1 + kinds.indexOf(kind)]]).filter(s => s[1] !== null);
  if (list.length < 2) return null;
  const values = list.map(s => s[1]), most = Math.max(...values), least = Math.min(...values), end = list.at(-1)[0];
  const x = t => Math.max(0, width - (end - t) / length * width).toFixed(1), y = n => (height - 1 - n / (most || 1) * (height - 2)).toFixed(1);
  const text = `${what}, last ten minutes: ${say(least)} to ${say(most)}`;
  return svg("svg", { class: "spark", viewBox: `0 0 ${width} ${height}`, width, height, role: "img", "aria-label": text }, svg("title", {}, text),
    svg("polyline", { points: list.map(([t, n]) => x(t) + "," + y(n)).join(" ") }));
}
