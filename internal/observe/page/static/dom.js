// Elements, formats, and how the page is brought up to date. Everything is inserted as text, never as markup.

export const byId = id => document.getElementById(id);

// el makes an element. Children that are empty are left out; attributes that are null, undefined or false are, too.
export function el(name, props, ...children) {
  const e = document.createElement(name);
  set(e, props);
  e.append(...children.flat().filter(c => c !== null && c !== undefined && c !== "" && c !== false));
  return e;
}

export function svg(name, props, ...children) {
  const e = document.createElementNS("http://www.w3.org/2000/svg", name);
  set(e, props);
  e.append(...children);
  return e;
}

function set(e, props) {
  for (const [key, value] of Object.entries(props || {})) {
    if (value !== undefined && value !== null && value !== false) e.setAttribute(key, value === true ? "" : value);
  }
}

// folded is a <details> that stays as the reader leaves it, until the page itself has a new opinion of whether it should be open.
export function folded(key, open, title, ...content) {
  return el("details", { "data-key": key, "data-open": open ? "yes" : "no", open: Boolean(open) }, el("summary", {}, title), ...content);
}

// show makes an element's children like these.
export function show(parent, ...children) {
  const focused = document.activeElement, fresh = document.createDocumentFragment();
  fresh.append(...children.flat().filter(c => c !== null && c !== undefined && c !== ""));
  likeChildren(parent, fresh);
  if (focused !== document.activeElement && focused.isConnected) focused.focus({ preventScroll: true }); // it was moved
}

// like makes an element like a fresh one, and keeps what is right already: the focus, what is selected, scrolled or unfolded.
export function like(old, fresh) {
  if (old.nodeType !== Node.ELEMENT_NODE) {
    if (old.data !== fresh.data) old.data = fresh.data;
    return;
  }
  if (old.dataset.open !== fresh.dataset.open) old.open = fresh.open;
  for (const { name } of [...old.attributes]) if (name !== "open" && !fresh.hasAttribute(name)) old.removeAttribute(name);
  for (const { name, value } of fresh.attributes) if (name !== "open" && old.getAttribute(name) !== value) old.setAttribute(name, value);
  likeChildren(old, fresh);
}

function likeChildren(old, fresh) {
  const key = node => node.dataset?.key;
  const keyed = new Map([...old.children].filter(key).map(e => [key(e), e]));
  let next = old.firstChild;
  for (const child of [...fresh.childNodes]) {
    const fits = key(child) ? keyed.get(key(child)) : next && !key(next) && next.nodeName === child.nodeName ? next : null;
    if (fits && fits === next) next = next.nextSibling;
    else old.insertBefore(fits || child, next);
    if (fits) like(fits, child);
  }
  while (next) {
    const rest = next.nextSibling;
    next.remove();
    next = rest;
  }
}

// Times are shown as the server's clock shows them, in its time zone, like its log.
let skew = 0, zone = 0;
export let zoneName = "UTC";

// setClock takes the server's time, such as 2026-11-22T15:04:05.678+01:00.
export function setClock(text) {
  const [, sign, hours, minutes] = /([+-])(\d\d):(\d\d)$/.exec(text) || ["", "+", 0, 0];
  skew = Date.parse(text) - Date.now();
  zone = (sign + 1) * (hours * 60 + Number(minutes)) * 60e3;
  zoneName = "UTC" + (zone ? sign + hours + ":" + minutes : "");
}

export const now = () => Date.now() + skew;
export const at = t => t ? Date.parse(t) : 0;
export const stamp = ms => new Date(ms + zone).toISOString().slice(0, 19).replace("T", " ");
export const hour = ms => stamp(ms).slice(11);
export const when = ms => stamp(ms).slice(0, 10) === stamp(now()).slice(0, 10) ? hour(ms) : stamp(ms);

// span formats a duration in ms.
export function span(ms) {
  if (ms < 0) ms = 0;
  if (ms < 1000) return Math.round(ms) + " ms";
  if (ms < 10e3) return (ms / 1000).toFixed(1) + " s";
  if (ms < 120e3) return Math.round(ms / 1000) + " s";
  if (ms < 7200e3) return Math.round(ms / 60e3) + " min";
  if (ms < 172800e3) return Math.round(ms / 3600e3) + " h";
  return Math.round(ms / 86400e3) + " d";
}
export const took = ns => ns ? span(ns / 1e6) : "–";

// age is an element that keeps itself current: how long ago t was.
export function age(t, before, after) {
  const e = el("time", { datetime: t, title: stamp(at(t)) + " " + zoneName, "data-before": before || "", "data-after": after || "" });
  tick(e);
  return e;
}
export function tick(e) {
  const text = e.dataset.before + span(now() - at(e.dateTime)) + e.dataset.after;
  if (e.textContent !== text) e.textContent = text;
}

// outcomeWord says how a reload went.
const outcomes = { not_ready: "not ready", worker: "worker failed", not_prepared: "could not be prepared" };
export const outcomeWord = r => r.rolled_back ? "rolled back" : outcomes[r.outcome] || r.outcome;

export const count = (n, what) => n + " " + what + (n === 1 ? "" : "s");
export const by = who => who ? " · by " + who : "";
export const percent = share => (share / 100).toLocaleString("en", { maximumFractionDigits: 2 }) + " %"; // of parts of 10,000
export function bytes(n) {
  if (n === undefined || n === null) return "?";
  return n < 10 * 2 ** 20 ? (n / 2 ** 20).toFixed(1) + " MiB" : n < 10 * 2 ** 30 ? Math.round(n / 2 ** 20) + " MiB" : (n / 2 ** 30).toFixed(1) + " GiB";
}

// plain removes the escape sequences by which programs colour their output.
export const plain = text => text.replace(/\x1b\[[0-9;]*[A-Za-z]/g, "");
