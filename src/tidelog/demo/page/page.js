// Reads each view once, then follows its changes from the place that the answer names: nothing is missed, nothing twice.
// A tab that nobody looks at lets go of its feeds, since a browser has few connections to one server, and comes back.
"use strict";

const MINUTES = 30, MINUTE_MS = 60_000, LOW = 40, AGAIN_MS = 1000, PARTS_MS = 2000, RATE_MS = 10_000;
const at = (id) => document.getElementById(id);
const number = new Intl.NumberFormat(undefined, { maximumFractionDigits: 1 });
const money = new Intl.NumberFormat(undefined, { style: "currency", currency: "EUR" });
const clock = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit" });
const orderCounts = []; // [when, orders in all], of the last seconds
let drawing = false;

class View {
  constructor(name, key, where) {
    Object.assign(this, { name, key, where, rows: new Map(), generation: 0, live: false, source: null, timer: 0, turn: 0 });
  }

  async begin() {
    const turn = this.end(); // whoever ends it, or begins it anew, while an answer is under way, counts
    const where = this.where ? `&where=${encodeURIComponent(this.where())}` : "";
    try {
      const answer = await fetch(`/views/${this.name}?limit=1000&generation=${this.generation}${where}`);
      if (!answer.ok) throw new Error(answer.status); // not there yet: Spark is starting
      const { rows, cursor } = await answer.json();
      if (turn !== this.turn) return;
      this.rows = new Map(rows.map((row) => [row[this.key], row]));
      this.follow(`/views/${this.name}/changes?cursor=${encodeURIComponent(cursor)}${where}`);
    } catch {
      if (turn === this.turn) this.again();
    }
    draw();
  }

  follow(path) {
    const source = (this.source = new EventSource(path));
    const put = (event) => {
      const { key, row } = JSON.parse(event.data);
      row ? this.rows.set(key[this.key], row) : this.rows.delete(key[this.key]);
      draw();
    };
    for (const kind of ["enter", "change", "leave"]) source.addEventListener(kind, put);
    // Its store may follow a little later.
    source.addEventListener("switched", (event) => { this.generation = JSON.parse(event.data).generation; this.begin(); });
    for (const kind of ["expired", "refused"]) source.addEventListener(kind, () => this.begin());
    source.onopen = () => { this.live = true; draw(); };
    source.onerror = () => {
      this.live = false;
      if (source.readyState === EventSource.CLOSED) this.again();
      draw();
    };
  }

  again() {
    this.end();
    this.timer = setTimeout(() => this.begin(), AGAIN_MS);
  }

  end() {
    clearTimeout(this.timer);
    if (this.source) this.source.close();
    Object.assign(this, { source: null, live: false });
    return ++this.turn;
  }
}

const since = () => new Date(Date.now() - MINUTES * MINUTE_MS).toISOString();
const revenue = new View("revenue", "product");
const stock = new View("stock", "product");
const minutes = new View("minutes", "minute", () => `minute >= '${since()}'`);
const views = [revenue, stock, minutes];

function draw() {
  if (drawing) return;
  drawing = true;
  requestAnimationFrame(() => { drawing = false; drawTotals(); drawProducts(); drawMinutes(); drawState(); });
}

function make(tag, text, kind) {
  const made = document.createElement(tag);
  if (text !== undefined) made.textContent = text;
  if (kind) made.className = kind;
  return made;
}

function drawTotals() {
  const rows = [...revenue.rows.values()];
  if (!rows.length) return;
  const sum = (name) => rows.reduce((all, row) => all + row[name], 0);
  at("revenue").textContent = money.format(sum("cents") / 100);
  at("orders").textContent = number.format(sum("orders"));
  const now = Date.now();
  orderCounts.push([now, sum("orders")]);
  while (orderCounts.length > 2 && orderCounts[0][0] < now - RATE_MS) orderCounts.shift();
  const [before, count] = orderCounts[0];
  if (now - before > 1000) at("rate").textContent = number.format(((sum("orders") - count) * 1000) / (now - before));
}

function drawProducts() {
  const rows = [...revenue.rows.values()].sort((one, other) => other.cents - one.cents);
  if (!rows.length) return;
  const body = at("products");
  rows.forEach((row, index) => {
    const line = body.children[index]?.cells.length === 5 ? body.children[index] : productLine(body, index);
    const left = stock.rows.get(row.product)?.quantity;
    const [name, cents, bar, orders, inStock] = line.cells;
    name.textContent = row.product;
    cents.textContent = money.format(row.cents / 100);
    bar.firstChild.style.width = `${(100 * row.cents) / rows[0].cents}%`;
    orders.textContent = number.format(row.orders);
    inStock.textContent = left === undefined ? "–" : number.format(left) + (left < LOW ? " (low)" : "");
    inStock.className = left < LOW ? "low" : "";
  });
  while (body.children.length > rows.length) body.lastChild.remove();
}

function productLine(body, index) {
  const line = make("tr"), name = make("th"), bar = make("td");
  name.scope = "row";
  bar.setAttribute("aria-hidden", "true");
  bar.append(make("span", undefined, "bar"));
  line.append(name, make("td"), bar, make("td"), make("td"));
  body.children[index] ? body.children[index].replaceWith(line) : body.append(line);
  return line;
}

function drawMinutes() {
  const now = Math.floor(Date.now() / MINUTE_MS) * MINUTE_MS, first = now - (MINUTES - 1) * MINUTE_MS;
  const rows = [...minutes.rows.values()].map((row) => ({ ...row, when: Date.parse(row.minute) })).filter((row) => row.when >= first);
  if (!rows.length) return;
  const peak = Math.max(...rows.map((row) => row.cents)), chart = at("minutes"), wide = 300 / MINUTES;
  chart.replaceChildren(...rows.flatMap((row) => {
    const high = (96 * row.cents) / peak, tardy = row.orders ? (high * row.late) / row.orders : 0;
    const left = ((row.when - first) / MINUTE_MS) * wide;
    return [box(left, 100 - high, wide, high, row.when === now ? "now" : "all"), box(left, 100 - tardy, wide, tardy, "tardy")];
  }));
  const late = rows.reduce((all, row) => all + row.late, 0), orders = rows.reduce((all, row) => all + row.orders, 0);
  chart.setAttribute("aria-label", `${rows.length} minutes, the highest with ${money.format(peak / 100)}`);
  at("first").textContent = clock.format(first);
  at("peak").textContent = `highest ${money.format(peak / 100)}`;
  at("last").textContent = clock.format(now);
  at("late").textContent = `${number.format(late)} of the last ${number.format(orders)} orders came late (the share of each minute in the other colour).`;
}

function box(x, y, width, height, kind) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", "rect");
  const sizes = { x: x + width * 0.1, y, width: width * 0.8, height, class: kind };
  for (const [name, value] of Object.entries(sizes)) made.setAttribute(name, value);
  return made;
}

function drawState(reached = true) {
  const live = views.every((view) => view.live && view.rows.size);
  say(!reached ? "bad" : live ? "good" : "wait", !reached ? "The server does not answer" : live ? "Live" : "Spark is starting");
}

function say(state, text) {
  const shown = at("state");
  if (shown.textContent === text && shown.dataset.state === state) return; // or it would be read out again and again
  shown.dataset.state = state;
  shown.textContent = text;
}

async function lookAtParts() {
  try {
    const parts = await (await fetch("/parts")).json();
    const queries = parts.filter((part) => part.kind === "query");
    const lags = queries.map((part) => part.figures.lag?.records).filter((lag) => lag !== undefined);
    at("lag").textContent = lags.length ? number.format(Math.max(...lags)) : "–";
    at("parts").replaceChildren(...parts.map(partLine));
    drawState();
  } catch {
    drawState(false);
  }
}

function partLine({ kind, name, state, runs, fault, figures }) {
  const line = make("tr"), head = make("th", `${kind} ${name}`);
  head.scope = "row";
  line.append(head, make("td", runs ? "runs" : fault ?? `is ${state}`, runs ? "good" : state === "failed" ? "bad" : "wait"), make("td", told(kind, figures)));
  return line;
}

function told(kind, { rows_in, rate, batch_ms, state_rows, parts, connections, rows, generations, error }) {
  if (error) return error.message ?? String(error);
  if (kind === "query" && rows_in !== undefined) {
    return `${number.format(rows_in)} rows read, ${number.format(rate ?? 0)} a second, ${number.format(batch_ms ?? 0)} ms a batch, ${number.format(state_rows ?? 0)} rows of state`;
  }
  if (kind === "broker") return `${number.format(connections ?? 0)} connections`;
  if (kind === "app" && parts) return `${Object.keys(parts).length} parts`;
  const behind = (generations ?? []).reduce((all, one) => all + (one.behind ?? 0), 0);
  return kind === "applier" ? `${number.format(rows ?? 0)} rows applied, ${number.format(behind)} behind` : "";
}

document.addEventListener("visibilitychange", () => views.forEach((view) => (document.hidden ? view.end() : view.begin())));
views.forEach((view) => view.begin());
lookAtParts();
setInterval(() => { if (!document.hidden) lookAtParts(); }, PARTS_MS);
