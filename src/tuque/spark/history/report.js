"use strict";
/* Draws the charts of the report as SVG, as wide as their boxes, and filters by queue.
   DATA is made by charts.py: buckets of time, series for each queue shown ("" are all). */
(() => {
  const DATA = JSON.parse(document.getElementById("data").textContent);
  const state = { queue: "", utc: true };
  const NS = "http://www.w3.org/2000/svg";
  const count = DATA.buckets;

  const el = (parent, name, attrs, text) => {
    const made = document.createElementNS(NS, name);
    for (const key in attrs) made.setAttribute(key, attrs[key]);
    if (text !== undefined) made.textContent = text;
    parent.appendChild(made);
    return made;
  };
  const html = (parent, name, className, text) => {
    const made = document.createElement(name);
    if (className) made.className = className;
    if (text !== undefined) made.textContent = text;
    parent.appendChild(made);
    return made;
  };

  const three = (n) => String(Number(n.toPrecision(3)));
  const number = (n) =>
    n >= 1e9 ? three(n / 1e9) + " G" : n >= 1e6 ? three(n / 1e6) + " M" :
    n >= 1e4 ? three(n / 1e3) + " k" : Math.abs(n) >= 100 || Number.isInteger(n) ?
    Math.round(n).toLocaleString("en-US") : three(n);
  const duration = (ms) =>
    ms === 0 ? "0" : ms < 1 ? three(ms * 1000) + " µs" : ms < 1000 ? three(ms) + " ms" :
    ms < 60e3 ? three(ms / 1e3) + " s" : ms < 3600e3 ? three(ms / 60e3) + " min" :
    ms < 86400e3 ? three(ms / 3600e3) + " h" : three(ms / 86400e3) + " d";

  const two = (n) => String(n).padStart(2, "0");
  const clock = (s, full) => {
    const d = new Date(s * 1000);
    const get = (name) => d[(state.utc ? "getUTC" : "get") + name]();
    const day = two(get("Month") + 1) + "-" + two(get("Date"));
    const time = two(get("Hours")) + ":" + two(get("Minutes"));
    if (full) return get("FullYear") + "-" + day + " " + time + ":" + two(get("Seconds"));
    const span = count * DATA.width;
    return span > 4 * 86400 ? day : span > 86400 ? day + " " + time :
      DATA.width < 30 ? time + ":" + two(get("Seconds")) : time;
  };

  const STEPS = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600,
    43200, 86400, 172800, 604800, 1209600, 2592000];
  const timeTicks = (most) => {
    const span = count * DATA.width;
    const step = STEPS.find((s) => span / s <= most) || Math.ceil(span / most);
    const shift = state.utc ? 0 : new Date(DATA.first * 1000).getTimezoneOffset() * 60;
    const ticks = [];
    for (let s = Math.ceil((DATA.first - shift) / step) * step + shift;
      s <= DATA.first + span; s += step) ticks.push(s);
    return ticks;
  };
  const linearTicks = (top) => {
    const raw = top / 4, base = 10 ** Math.floor(Math.log10(raw));
    const step = [1, 2, 5, 10].map((m) => m * base).find((s) => s >= raw);
    const ticks = [];
    for (let v = 0; v < top + step * 0.999; v += step) ticks.push(v);
    return ticks;
  };

  /* One chart: series are {name, colour, values}; kinds: line, stack (areas), bars; log: ms. */
  const draw = (box, spec) => {
    const series = spec.series(state.queue);
    box.textContent = "";
    const legend = html(box, "div", "legend");
    const frame = html(box, "div", "chart");
    const width = Math.max(240, box.clientWidth), height = 240;
    const svg = el(frame, "svg", { viewBox: `0 0 ${width} ${height}`, height, role: "img",
      "aria-label": spec.title });
    const stacked = spec.kind !== "line";
    const tops = [];
    for (let b = 0; b < count; b++) {
      let sum = 0;
      for (const s of series) {
        const v = s.values[b];
        if (v === null || v === undefined) continue;
        sum = stacked ? sum + v : Math.max(sum, v);
      }
      tops.push(sum);
    }
    let top = tops.reduce((a, b) => Math.max(a, b), 0) || 1;
    let ticks, y;
    const topPx = 8, bottomPx = height - 22;
    if (spec.log) {
      let low = top;
      for (const s of series) for (const v of s.values) if (v > 0 && v < low) low = v;
      const from = Math.floor(Math.log10(Math.max(low, 0.01)));
      const to = Math.max(from + 1, Math.ceil(Math.log10(top)));
      ticks = [];
      for (let e = from; e <= to; e++) ticks.push(10 ** e);
      y = (v) => bottomPx - (bottomPx - topPx) *
        (Math.log10(Math.max(v, 10 ** from)) - from) / (to - from);
    } else {
      ticks = linearTicks(top);
      top = ticks[ticks.length - 1];
      y = (v) => bottomPx - (bottomPx - topPx) * v / top;
    }
    const label = spec.log ? duration : number;
    const left = 12 + 6.6 * Math.max(...ticks.map((t) => label(t).length));
    const right = width - 10;
    const x = (b) => left + (right - left) * b / count;
    for (const t of ticks) {
      el(svg, "line", { class: "axis", x1: left, x2: right, y1: y(t), y2: y(t) });
      el(svg, "text", { x: left - 6, y: y(t) + 4, "text-anchor": "end" }, label(t));
    }
    for (const s of timeTicks(Math.max(2, Math.floor((right - left) / 90)))) {
      const at = x((s - DATA.first) / DATA.width);
      el(svg, "line", { class: "axis", x1: at, x2: at, y1: bottomPx, y2: bottomPx + 4 });
      el(svg, "text", { x: Math.min(at, right - 20), y: height - 5, "text-anchor": "middle" },
        clock(s));
    }
    const below = new Array(count).fill(0);
    series.forEach((s) => {
      let fill = `var(--c${s.colour})`;
      if (spec.kind === "bars") {
        s.values.forEach((v, b) => {
          if (!v) return;
          const w = Math.max(1, (right - left) / count - 1);
          el(svg, "rect", { x: x(b), width: w, y: y(below[b] + v),
            height: Math.max(1, y(below[b]) - y(below[b] + v)), fill });
          below[b] += v;
        });
      } else if (spec.kind === "stack") {
        let path = "";
        for (let b = 0; b < count; b++) {
          const v = y(below[b] + (s.values[b] || 0));
          path += `${b ? "L" : "M"}${x(b)},${v}L${x(b + 1)},${v}`;
        }
        for (let b = count - 1; b >= 0; b--) {
          path += `L${x(b + 1)},${y(below[b])}L${x(b)},${y(below[b])}`;
          below[b] += s.values[b] || 0;
        }
        const stroke = fill;
        if (s.hatched) {
          const hatch = el(svg, "pattern", { id: `hatch${s.colour}`, width: 6, height: 6,
            patternUnits: "userSpaceOnUse", patternTransform: "rotate(45)" });
          el(hatch, "rect", { width: 3, height: 6, fill });
          fill = `url(#hatch${s.colour})`;
        }
        el(svg, "path", { d: path + "Z", fill, "fill-opacity": s.hatched ? 1 : 0.55, stroke });
      } else {
        let path = "", alone = true;
        s.values.forEach((v, b) => {
          const has = v !== null && v !== undefined;
          if (has) {
            const before = b > 0 && s.values[b - 1] !== null && s.values[b - 1] !== undefined;
            const after = b + 1 < count && s.values[b + 1] !== null &&
              s.values[b + 1] !== undefined;
            path += `${before ? "L" : "M"}${x(b + 0.5)},${y(v)}`;
            if (!before && !after) el(svg, "circle", { cx: x(b + 0.5), cy: y(v), r: 2.5, fill });
            alone = alone && !after;
          }
        });
        el(svg, "path", { d: path || "M0,0", fill: "none", stroke: fill, "stroke-width": 1.8 });
      }
    });
    for (const kill of DATA.kills) {
      const at = x((kill.s - DATA.first) / DATA.width);
      const line = el(svg, "line", { x1: at, x2: at, y1: topPx, y2: bottomPx,
        stroke: "var(--kill)", "stroke-width": 1.5, "stroke-dasharray": "4 3" });
      el(line, "title", {}, `${kill.node} was killed, ${clock(kill.s, true)}`);
    }
    const cursor = el(svg, "line", { y1: topPx, y2: bottomPx, stroke: "var(--soft)",
      visibility: "hidden" });
    const tell = (b) => {
      legend.textContent = "";
      if (b !== null) html(legend, "span", "", clock(DATA.first + b * DATA.width, true));
      for (const s of series) {
        const item = html(legend, "span");
        const colour = `var(--c${s.colour})`;
        html(item, "i").style.background = s.hatched ?
          `repeating-linear-gradient(45deg, ${colour} 0 2px, transparent 2px 4px)` : colour;
        item.append(s.name);
        if (b !== null && s.values[b] !== null && s.values[b] !== undefined) {
          item.append(" ");
          html(item, "b", "", label(s.values[b]));
        }
      }
      if (b === null && DATA.kills.length) {
        const item = html(legend, "span");
        html(item, "i").style.background = "var(--kill)";
        item.append("a node was killed");
      }
    };
    tell(null);
    svg.addEventListener("pointermove", (event) => {
      const box = svg.getBoundingClientRect();
      const px = (event.clientX - box.left) * width / box.width;
      const b = Math.floor((px - left) * count / (right - left));
      const inside = b >= 0 && b < count;
      cursor.setAttribute("visibility", inside ? "visible" : "hidden");
      cursor.setAttribute("x1", x(b + 0.5));
      cursor.setAttribute("x2", x(b + 0.5));
      tell(inside ? b : null);
    });
    svg.addEventListener("pointerleave", () => {
      cursor.setAttribute("visibility", "hidden");
      tell(null);
    });
  };

  const none = () => new Array(count).fill(null);
  const of = (queue) => DATA.series[queue] || {};
  const lines = (names, keys, map) => (queue) => keys.map((key, i) => ({
    name: names[i], colour: [0, 1, 2][i] ?? i, values: (of(queue)[key] || none()).map(map) }));
  const per = (v) => v === null ? null : v / DATA.width;
  const same = (v) => v;
  const latency = (what) => (queue) => ["median", "95 %", "99 %"].map((name, i) => ({
    name, colour: [2, 1, 5][i], values: of(queue)[what + i] || none() }));
  const COLOURS = 8;  // of report.css; the series after these are hatched
  const specs = {
    rates: { title: "Rates", kind: "line",
      series: lines(["added", "delivered", "acked"], ["added", "delivered", "acked"], per) },
    open: { title: "Open jobs", kind: "stack", series: (queue) =>
      (queue ? [queue] : DATA.queues).map((name, i) => ({ name: DATA.labels[name] || name,
        colour: DATA.queues.indexOf(name) % COLOURS, hatched: DATA.queues.indexOf(name) >= COLOURS,
        values: of(name).open || none() })) },
    troubles: { title: "Redelivered and dead", kind: "bars", series: (queue) =>
      [["redelivered", 1], ["dead", 5]].map(([name, colour]) => ({ name, colour,
        values: of(queue)[name] || none() })) },
    wait: { title: "Wait", kind: "line", log: true, series: latency("wait") },
    process: { title: "Process", kind: "line", log: true, series: latency("process") },
  };

  const causes = (box) => {
    box.textContent = "";
    const rows = DATA.causes.filter((r) => !state.queue || r[0] === state.queue);
    const sums = new Map();
    for (const [, cause, n] of rows) sums.set(cause, (sums.get(cause) || 0) + n);
    const sorted = [...sums].sort((a, b) => b[1] - a[1]);
    const total = sorted.reduce((a, r) => a + r[1], 0);
    const most = sorted.length ? sorted[0][1] : 1;
    html(box, "p", "", `${total.toLocaleString("en-US")} redeliveries`);
    const table = html(box, "table");
    for (const [cause, n] of sorted) {
      const tr = html(table, "tr");
      html(tr, "td", "text", cause);
      html(tr, "td", "", n.toLocaleString("en-US"));
      const bar = html(html(tr, "td", "text"), "div");
      bar.style.cssText = `width:${100 * n / most}%;min-width:2px;height:12px;` +
        "background:var(--c1);border-radius:3px";
      bar.parentElement.style.width = "60%";
    }
  };

  const keys = new Map(Object.entries(DATA.names).map(([key, name]) => [name, key]));
  const keyOf = (name) => keys.get(name) ?? "-1";  // of a queue without a line of its own

  const show = () => {
    for (const box of document.querySelectorAll("[data-chart]")) {
      if (box.dataset.chart === "causes") causes(box);
      else draw(box, specs[box.dataset.chart]);
    }
    for (const at of document.querySelectorAll("time[data-s]"))
      at.textContent = clock(Number(at.dataset.s), true);
    for (const zone of document.querySelectorAll("[data-zone]")) zone.textContent = state.utc ?
      "UTC" : Intl.DateTimeFormat().resolvedOptions().timeZone;
    for (const row of document.querySelectorAll("tr[data-queue]"))
      row.hidden = Boolean(state.queue) && keyOf(row.dataset.queue) !== state.queue;
    for (const t of document.querySelectorAll("[data-tile]"))
      t.textContent = DATA.tiles[state.queue][t.dataset.tile];
  };
  const on = (id, act) => document.getElementById(id).addEventListener("change", (event) => {
    act(event.target.value);
    show();
  });
  on("queue", (value) => { state.queue = value; });
  on("zone", (value) => { state.utc = value === "utc"; });
  on("theme", (value) => { document.documentElement.dataset.theme = value; });
  let before = 0;
  new ResizeObserver(() => {
    if (document.body.clientWidth !== before) {
      before = document.body.clientWidth;
      show();
    }
  }).observe(document.body);
  show();
})();
