// The picture of a reload: the generations around it as bars.

import { at, count, el, hour, now, outcomeWord, span, svg } from "./dom.js";

const left = 46, row = 30;
const words = { trial: "starting, or a canary", serving: "serving", finishing: "finishing its requests", draining: "told to stop", failed: "failed" };

// figure is the picture with its legend, and with a text that says the same.
export function figure(p, r) {
  const id = `when-${p.name}-${r.generation}`, picture = timeline(p, r, id);
  const used = Object.keys(words).filter(kind => picture.querySelector(".bar-" + kind));
  return el("figure", { class: "when" }, picture, el("figcaption", { id }, told(r)),
    el("ul", { class: "legend" }, used.map(kind => el("li", { class: "l-" + kind }, words[kind]))));
}

// told says in words what the picture shows.
function told(r) {
  const parts = [r.replaced ? `Generation ${r.replaced} → ${r.generation}` : `Generation ${r.generation}`];
  if (r.began) parts.push("began at " + hour(at(r.began)));
  if (r.spawn_to_ready_ns) parts.push("ready after " + span(r.spawn_to_ready_ns / 1e6));
  if (r.decided) parts.push(r.outcome === "serves" ? "served after " + span(at(r.decided) - at(r.began)) : outcomeWord(r) + " after " + span(at(r.decided) - at(r.began || r.decided)));
  if (r.overlap_ns) parts.push("side by side for " + span(r.overlap_ns / 1e6));
  if (r.ended) parts.push(r.drain_ns ? "all over after another " + span(r.drain_ns / 1e6) : "over");
  else parts.push("still under way");
  if (r.killed) parts.push(count(r.killed, "worker") + " killed");
  return parts.join(" · ");
}

function timeline(p, r, id) {
  const end0 = at(r.ended) || now(), begin0 = at(r.began || r.decided), pad = Math.max(2, (end0 - begin0) * .14);
  const from = begin0 - pad, to = end0 + pad;
  const W = Math.max(260, Math.min(1100, document.documentElement.clientWidth - 90)); // so that text keeps its size
  const x = t => left + (Math.min(Math.max(t, from), to) - from) / (to - from) * (W - left);
  const lives = p.reloads.filter(l => l.began && at(l.began) < to && (!l.gone || at(l.gone) > from)).slice(-6);
  const high = lives.length * row;
  const s = svg("svg", { class: "timeline", viewBox: `0 0 ${W} ${high + 24}`, role: "img", "aria-labelledby": id });
  if (r.overlap_ns || !r.ended) {
    const first = r.overlap_ns ? end0 - r.overlap_ns / 1e6 : begin0;
    s.append(svg("rect", { class: "overlap", x: x(first), y: 0, width: Math.max(1, x(end0) - x(first)), height: high }));
  }
  lives.forEach((l, i) => life(s, l, p.reloads.find(n => n.replaced === l.generation && n.flipped), i * row, x));
  s.append(svg("line", { class: "axis", x1: left, x2: W, y1: high + 3, y2: high + 3 }),
    ...[begin0, end0].map(t => svg("line", { class: "axis", x1: x(t), x2: x(t), y1: 0, y2: high + 7 })),
    svg("text", { x: x(begin0), y: high + 20 }, hour(begin0)),
    svg("text", { x: x(end0), y: high + 20, "text-anchor": "end" }, (r.ended ? "+" : "now, +") + span(end0 - begin0)));
  return s;
}

// life draws one generation; next is the reload that steered its new connections away, if one did.
function life(s, l, next, y, x) {
  const began = at(l.began), served = l.outcome === "serves" && at(l.decided), retired = at(l.retired), gone = at(l.gone), end = gone || now() + 1e12;
  const failed = ["not_prepared", "not_ready", "worker"].includes(l.outcome);
  s.append(svg("text", { x: 40, y: y + 19, "text-anchor": "end" }, "gen " + l.generation));
  const bar = (kind, a, b, what) => {
    const x1 = x(a), x2 = x(b);
    if (x2 <= x1) return;
    s.append(svg("rect", { class: "bar-" + kind, x: x1, y: y + 5, width: Math.max(2, x2 - x1), height: 20, rx: 3 },
      svg("title", {}, `generation ${l.generation}: ${what} for ${span(Math.min(b, now()) - a)}`)));
  };
  if (failed) return bar("failed", began, end, outcomeWord(l));
  bar("trial", began, served || retired || end, "starting, or a canary");
  if (served) bar("serving", served, retired || end, "served");
  const quiet = served && retired && next ? Math.min(end, next.quiet_ns ? at(next.flipped) + next.quiet_ns / 1e6 : end) : 0;
  if (quiet) bar("finishing", retired, quiet, "finished its requests");
  if (retired) bar("draining", Math.max(retired, quiet), end, "told to stop");
}
