// Charts: uPlot with our colours, dashes and units; one cursor for all charts of a page.
"use strict";
const charts = (() => {
  const drawn = new Map();
  const DASH = [[], [7, 3], [2, 3], [10, 3, 2, 3], [4, 4], [1, 3]];
  const minus = (text) => text.replace("-", "−");
  const num = (v) => minus(Math.abs(v) >= 100 || Number.isInteger(v) ? Math.round(v).toLocaleString("en") : v.toFixed(1));
  function span(s) {
    if (s < 1) return num(Math.round(s * 10000) / 10) + " ms";
    if (s < 59.95) return (Number.isInteger(s) ? s : s.toFixed(1)) + " s";
    const whole = Math.round(s), two = (n) => String(n).padStart(2, "0");
    if (whole < 3600) return `${Math.floor(whole / 60)} m ${two(whole % 60)} s`;
    return `${Math.floor(whole / 3600)} h ${two(Math.floor((whole % 3600) / 60))} m`;
  }
  const short = (v) => Math.abs(v) >= 10000 ? num(v / 1000) + "k" : num(v);
  const FORMS = {
    num, span, pct: (v) => num(v) + " %", rate: (v) => v.toFixed(1) + "/s",
    signed: (v) => (v > 0 ? "+" : "") + minus(v.toFixed(1)) + "/s",
  };
  const TICKS = { num: short, span: (v) => (v < 1 ? v * 1000 + " ms" : v < 60 ? v + " s" : v < 3600 ? num(v / 60) + " m" : num(v / 3600) + " h"), pct: num, rate: short, signed: short };
  const decadeOf = (v) => (v < 1 ? num(v * 1000) + " ms" : num(v) + " s");
  const SPANS = [0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400, 172800, 432000, 864000]; // s between two spans of the axis
  const clock = (s) => new Date(s * 1000).toLocaleTimeString("en-GB", { hour: "2-digit", minute: "2-digit" });
  const full = (s) => new Date(s * 1000).toLocaleTimeString("en-GB");
  const STEPS = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400]; // seconds between two times of the axis

  const style = getComputedStyle(document.documentElement);
  const probe = document.createElement("canvas").getContext("2d");
  function colour(name) { // light-dark() as the theme has it now
    const el = document.createElement("i");
    el.className = name;
    document.body.append(el);
    const value = getComputedStyle(el).color;
    el.remove();
    return value;
  }
  function faded(value, share) {
    probe.fillStyle = value;
    const hex = probe.fillStyle;
    return hex.startsWith("#") ? hex + Math.round(share * 255).toString(16).padStart(2, "0") : value;
  }

  function stacked(lines) {
    const sums = [];
    let below = null;
    for (const line of lines) {
      below = line.v.map((v, i) => (v ?? 0) + (below ? below[i] : 0));
      sums.push(below);
    }
    return sums;
  }

  function draw(figure) {
    const plot = figure.querySelector(".plot");
    const chart = JSON.parse(figure.dataset.chart);
    drawn.get(figure)?.destroy();
    drawn.delete(figure);
    plot.replaceChildren();
    if (chart.at.length < 2) { figure.querySelector(".legend").replaceChildren(); return; }
    const isStack = chart.lines.some((line) => line.kind === "stack");
    const values = isStack ? stacked(chart.lines) : chart.lines.map((line) => chart.log ? line.v.map((v) => (v ? v : null)) : line.v);
    // the topmost area is drawn first, so that those below cover it
    const order = chart.lines.map((_, i) => i);
    if (isStack) order.reverse();
    const ink = colour("q3"), grid = style.getPropertyValue("--grid") ? faded(colour("s6"), 0.18) : "#8884";
    const legend = legendOf(figure, chart);
    const series = order.map((i) => {
      const line = chart.lines[i], c = colour(line.c);
      const base = { label: line.name, stroke: c, width: 1.75, points: { show: false }, spanGaps: false };
      if (line.kind === "bar") return { ...base, fill: faded(c, 0.9), width: 0, paths: uPlot.paths.bars({ size: [0.8, 40] }) };
      if (line.kind === "stack") return { ...base, width: 0, fill: figureGround(c) };
      if (line.kind === "area") return { ...base, fill: faded(c, 0.16), dash: DASH[i] };
      return { ...base, dash: DASH[i] };
    });
    const known = values.flat().filter((v) => v !== null);
    let low = Math.min(0, ...known), high = Math.max(chart.form === "pct" ? 10 : 0, ...known);
    if (chart.limit !== null && high > chart.limit * 0.5) high = Math.max(high, chart.limit);
    if (high === low) high = low + 1;
    const tick = chart.log && chart.form === "span" ? decadeOf : TICKS[chart.form];
    const isShort = chart.at.at(-1) - chart.at[0] < 900;
    const decade = (_, at) => at.map((v) => (v > 0 && Math.abs(Math.log10(v) - Math.round(Math.log10(v))) < 1e-9 ? v : null));
    const above = known.filter((v) => v > 0);
    const floor = above.length ? 10 ** Math.floor(Math.log10(Math.min(...above))) : 1;
    const roof = above.length ? 10 ** Math.ceil(Math.log10(Math.max(...above) * 1.0001)) : 10;
    const options = {
      width: Math.max(120, plot.clientWidth), height: plot.clientHeight, padding: [8, isShort ? 30 : 20, 0, 0],
      legend: { show: false },
      cursor: { y: false, points: { show: false }, drag: { x: false, y: false }, sync: { key: "tuque", setSeries: false, scales: ["x", null] } },
      scales: { x: { time: true }, y: chart.log ? { distr: 3, log: 10, range: [floor, Math.max(roof, floor * 10)] } : { range: [low, high * 1.06] } },
      axes: [
        { stroke: ink, grid: { show: false }, ticks: { show: false }, font: "11px " + style.getPropertyValue("--sans"), size: 20, space: isShort ? 58 : 48, incrs: STEPS, values: (u, at, _axis, _space, step) => at.map((s) => (s > u.scales.x.max ? "" : step < 60 ? full(s) : clock(s))) },
        { stroke: ink, grid: chart.log ? { stroke: grid, width: 1, filter: decade } : { stroke: grid, width: 1 }, ticks: { show: false }, font: "11px " + style.getPropertyValue("--sans"), size: 44, gap: 4, space: 28, ...(chart.log ? { filter: decade } : chart.form === "span" ? { incrs: SPANS } : {}), values: (_, at) => at.map((v) => (v === null ? "" : tick(v))) },
      ],
      series: [{}, ...series],
      hooks: {
        setCursor: [(u) => say(chart, legend, u.cursor.idx)],
        draw: [(u) => marks(u, chart), ...(chart.limit !== null && chart.limit <= high ? [(u) => limit(u, chart)] : [])],
      },
    };
    const u = new uPlot(options, [chart.at, ...order.map((i) => values[i])], plot);
    drawn.set(figure, u);
    say(chart, legend, null);
    table(figure, chart);
  }
  const figureGround = (c) => faded(c, 0.75);

  function limit(u, chart) {
    const y = u.valToPos(chart.limit, "y", true), ctx = u.ctx;
    ctx.save();
    ctx.strokeStyle = ctx.fillStyle = colour("warn-t");
    ctx.setLineDash([4, 4]);
    ctx.beginPath();
    ctx.moveTo(u.bbox.left, y);
    ctx.lineTo(u.bbox.left + u.bbox.width, y);
    ctx.stroke();
    ctx.font = `${11 * devicePixelRatio}px sans-serif`;
    ctx.textAlign = "left";
    ctx.fillText(chart.limitName, u.bbox.left + 4, y - 5);
    ctx.restore();
  }

  function marks(u, chart) { // deploys: a line from top to bottom, its text beside it
    const ctx = u.ctx, { left, top, width, height } = u.bbox;
    ctx.save();
    ctx.strokeStyle = colour("q3");
    ctx.fillStyle = colour("q2");
    ctx.setLineDash([2, 3]);
    ctx.lineWidth = devicePixelRatio;
    ctx.font = `${10 * devicePixelRatio}px sans-serif`;
    const rows = []; // of texts, those that would meet are one below the other
    const shown = chart.marks.map(([at, text]) => [u.valToPos(at, "x", true), text]).filter(([x]) => x >= left && x <= left + width);
    for (const [x] of shown) {
      ctx.beginPath();
      ctx.moveTo(x, top);
      ctx.lineTo(x, top + height);
      ctx.stroke();
    }
    const ink = ctx.fillStyle, ground = getComputedStyle(u.root.closest(".panel") ?? document.body).backgroundColor;
    ctx.textAlign = "left";
    const texts = [], gap = 4 * devicePixelRatio, high = 12 * devicePixelRatio;
    for (const [x, text] of shown) { // after all lines, and on a ground: no line runs through a text
      const wide = ctx.measureText(text).width + 2 * gap, isLast = x + wide > left + width;
      const from = isLast ? Math.max(left, x - wide) : x, to = from + wide;
      let row = 0;
      while ((rows[row] ??= []).some(([begin, end]) => from < end && to > begin)) row += 1;
      rows[row].push([from, to]);
      ctx.fillStyle = ground;
      ctx.globalAlpha = 0.8;
      ctx.fillRect(from + gap / 2, top + high * row, wide - gap, high);
      texts.push([text, from + gap, top + 9 * devicePixelRatio + high * row]);
    }
    ctx.fillStyle = ink;
    ctx.globalAlpha = 1;
    for (const one of texts) ctx.fillText(...one);
    ctx.restore();
  }

  function legendOf(figure, chart) {
    const list = figure.querySelector(".legend");
    const found = chart.lines.map((line, i) => {
      const li = document.createElement("li"), key = document.createElement("i"), value = document.createElement("b");
      const isFull = line.kind === "bar" || line.kind === "stack";
      key.className = line.c + (isFull ? " full" : i === 1 ? " d2" : i > 1 ? " d3" : "");
      li.append(key, line.name + " ", value);
      list.append(li);
      return value;
    });
    list.replaceChildren(...found.map((value) => value.parentNode));
    return found;
  }
  function say(chart, legend, i) {
    const at = i ?? chart.at.length - 1;
    chart.lines.forEach((line, k) => {
      const v = line.v[at];
      legend[k].textContent = v === null || v === undefined ? "–" : FORMS[chart.form](v);
    });
  }
  function table(figure, chart) {
    const details = figure.querySelector(".as-table"), body = details.querySelector("tbody");
    const fill = () => {
      if (!details.open) return;
      body.replaceChildren(...chart.at.map((at, i) => {
        const row = document.createElement("tr");
        const cells = [full(at), ...chart.lines.map((line) => line.v[i] === null ? "–" : FORMS[chart.form](line.v[i]))];
        row.append(...cells.map((text, k) => { const td = document.createElement("td"); td.textContent = text; if (k) td.className = "n"; return td; }));
        return row;
      }).reverse());
    };
    details.ontoggle = fill;
    fill();
  }

  function all(isForced) {
    for (const figure of [...drawn.keys()]) if (!figure.isConnected) { drawn.get(figure).destroy(); drawn.delete(figure); }
    for (const figure of document.querySelectorAll("figure[data-chart]")) {
      if (!isForced && figure.drawnOf === figure.dataset.chart) continue;
      figure.drawnOf = figure.dataset.chart;
      draw(figure);
    }
  }
  function step(figure, by) {
    const u = drawn.get(figure);
    if (!u) return;
    const count = u.data[0].length;
    const at = Math.max(0, Math.min(count - 1, (u.cursor.idx ?? count - 1) + by));
    u.setCursor({ left: u.valToPos(u.data[0][at], "x"), top: 10 }, true);
  }
  document.addEventListener("keydown", (e) => {
    const by = { ArrowLeft: -1, ArrowRight: 1, PageUp: -10, PageDown: 10 }[e.key];
    if (!by || !e.target.classList?.contains("plot")) return;
    e.preventDefault();
    step(e.target.closest("figure"), by);
  });
  let later = 0;
  addEventListener("resize", () => { clearTimeout(later); later = setTimeout(() => all(true), 100); });
  return { all, span };
})();
