// What the pages do beyond links and forms: live figures, dialogs, keys, themes, times.
"use strict";
const $ = (s, at = document) => at.querySelector(s);
const $$ = (s, at = document) => [...at.querySelectorAll(s)];

// --- times in the reader's zone -------------------------------------------------------------------
function times(at = document) {
  for (const el of $$("time[datetime]", at)) {
    const when = new Date(el.dateTime), now = new Date();
    const isToday = when.toDateString() === now.toDateString();
    const clock = when.toLocaleTimeString("en-GB");
    const day = when.toLocaleDateString("en-GB", { day: "numeric", month: "short" });
    el.textContent = isToday ? clock : `${day} ${clock}`;
  }
}

// --- live figures: one stream a tab; none while it is hidden or paused ------------------------------
const live = (() => {
  let source = null, isPaused = false, waits_s = 1, timer = 0;
  const state = $("#live-state"), at = $("#live-at");
  function say(kind, word) { state.className = "st " + kind; state.textContent = word; }
  function take(news) {
    const box = document.createElement("template");
    let isOther = false;
    for (const html of news.pieces) {
      box.innerHTML = html;
      for (const piece of [...box.content.children]) {
        const mine = piece.id && document.getElementById(piece.id);
        if (mine) morph(mine, piece); else isOther = true;
      }
    }
    if (isOther) whole();
    document.documentElement.toggleAttribute("data-old", news.away > 0);
    if (news.at) at.innerHTML = `<time datetime="${new Date(news.at * 1000).toISOString()}"></time>`;
    if (news.nodes && news.away === news.nodes) say("bad", "Cut off");
    else if (news.away) say("warn", `${news.nodes - news.away} of ${news.nodes}`);
    else say("ok", "Live");
    times();
    charts.all();
    picked();
  }
  async function whole() { // the page has other parts now
    const reply = await fetch(location.href);
    const page = new DOMParser().parseFromString(await reply.text(), "text/html");
    const main = $("#main", page);
    if (main) { morph($("#main"), main); times(); charts.all(true); picked(); }
  }
  function open() {
    clearTimeout(timer);
    if (source || isPaused || document.hidden || !$("#main") || document.body.dataset.page === "") return;
    source = new EventSource("/live?path=" + encodeURIComponent(location.pathname + location.search));
    source.onmessage = (e) => { waits_s = 1; take(JSON.parse(e.data)); };
    source.addEventListener("over", () => location.reload());
    source.onerror = () => {
      shut();
      say("bad", "Lost");
      timer = setTimeout(open, waits_s * 1000);
      waits_s = Math.min(30, waits_s * 2);
    };
  }
  function shut() { source?.close(); source = null; clearTimeout(timer); }
  function pause(on) {
    isPaused = on;
    const button = $("#pause");
    button.textContent = on ? "Resume" : "Pause";
    button.setAttribute("aria-pressed", on);
    if (on) { shut(); say("pause", "Paused"); } else { say("idle", "Asking"); open(); }
  }
  document.addEventListener("visibilitychange", () => (document.hidden ? shut() : open()));
  addEventListener("pagehide", shut);
  addEventListener("pageshow", (e) => e.persisted && open());
  $("#pause")?.addEventListener("click", () => pause(!isPaused));
  return { open, toggle: () => pause(!isPaused), isOpen: () => source !== null };
})();

// --- rows that are chosen ----------------------------------------------------------------------------
const num = (n) => n.toLocaleString("en");
function picked() {
  const bar = $("[data-picked]");
  if (!bar) return;
  const boxes = $$("input.pick:checked");
  bar.hidden = boxes.length === 0;
  const jobs = boxes.reduce((sum, box) => sum + Number(box.dataset.jobs ?? 0), 0);
  const word = boxes[0]?.name === "group" ? "group" : "queue";
  const rows = `${boxes.length} ${word}${boxes.length === 1 ? "" : "s"} chosen`;
  $("[data-count]", bar).textContent = jobs ? `${num(jobs)} jobs chosen, ${boxes.length} ${word}${boxes.length === 1 ? "" : "s"}` : rows;
}

// --- dialogs that ask ---------------------------------------------------------------------------------
async function ask(href) {
  const reply = await fetch(href, { headers: { "x-part": "dialog" } });
  if (reply.redirected) return location.assign(href);
  show(await reply.text());
}
function show(html) {
  const box = $("#ask");
  box.innerHTML = html;
  box.setAttribute("aria-labelledby", "ask-h");
  if (!box.open) box.showModal();
  ($("[autofocus]", box) ?? box).focus();
  const again = $("[data-again]", box); // what it asks about is still being read
  if (again) setTimeout(() => box.open && again.isConnected && ask(again.href), 1000);
}
async function send(form, button) {
  const fields = new URLSearchParams(new FormData(form));
  for (const one of $$("button", form)) one.disabled = true;
  const reply = await fetch(form.action, { method: "POST", body: fields, headers: { "x-part": "dialog" } });
  if (reply.redirected) {
    if (reply.url.split("#")[0] === location.href.split("#")[0]) return location.reload();
    return location.assign(reply.url);
  }
  show(await reply.text());
}
document.addEventListener("click", (e) => {
  const asks = e.target.closest("a[data-ask]");
  if (asks && !e.ctrlKey && !e.metaKey) { e.preventDefault(); ask(asks.href); }
  const many = e.target.closest("[data-ask-picked]");
  if (many) {
    e.preventDefault();
    const url = new URL(many.dataset.askPicked, location.href);
    for (const box of $$("input.pick:checked")) url.searchParams.append(box.name, box.value);
    ask(url.href);
  }
  if (e.target.closest("[data-clear]")) { for (const box of $$("input.pick:checked")) box.checked = false; picked(); }
  const close = e.target.closest("dialog [data-close]");
  if (close) { e.preventDefault(); close.closest("dialog").close(); }
  if (e.target.closest("#theme")) theme();
  if (e.target.closest("#show-keys")) $("#keys").showModal();
  const copy = e.target.closest("[data-copy]");
  if (copy) navigator.clipboard?.writeText($("pre:not([hidden])", copy.closest("section")).textContent);
  const tab = e.target.closest("[role=tab]");
  if (tab) choose(tab);
});
document.addEventListener("submit", (e) => {
  if (!e.target.matches("dialog [data-action-form]")) return;
  e.preventDefault();
  send(e.target, e.submitter);
});
document.addEventListener("change", (e) => e.target.matches("input.pick") && picked());

// --- tabs of a body -----------------------------------------------------------------------------------
function choose(tab) {
  for (const one of $$("[role=tab]", tab.parentNode)) {
    one.setAttribute("aria-selected", one === tab);
    document.getElementById(one.getAttribute("aria-controls")).hidden = one !== tab;
  }
}

// --- theme and keys -----------------------------------------------------------------------------------
function theme() {
  const html = document.documentElement;
  const isDark = html.dataset.theme ? html.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  html.dataset.theme = isDark ? "light" : "dark";
  try { localStorage.setItem("tuque-theme", html.dataset.theme); } catch { /* for this page only */ }
  charts.all(true);
}
let isAfterG = false;
const PLACES = { o: "/", q: "/queues", d: "/dead", t: "/tubes", s: "/schedules", g: "/groups", p: "/topics", w: "/workers", c: "/cluster", l: "/leases" };
document.addEventListener("keydown", (e) => {
  if (e.ctrlKey || e.metaKey || e.altKey || /INPUT|SELECT|TEXTAREA/.test(e.target.tagName) || $("dialog[open]")) return;
  if (isAfterG && PLACES[e.key]) { isAfterG = false; return location.assign(PLACES[e.key]); }
  isAfterG = e.key === "g";
  if (e.key === "/") { e.preventDefault(); ($(".tools input[type=search]") ?? $("#find")).focus(); }
  if (e.key === "p") live.toggle();
  if (e.key === "t") theme();
  if (e.key === "?") $("#keys").showModal();
  if (e.key === "j" || e.key === "k") {
    const list = $$("table[data-rows] tbody tr").filter((row) => $("a", row));
    const at = list.findIndex((row) => row.contains(document.activeElement));
    const next = list[Math.max(0, Math.min(list.length - 1, at + (e.key === "j" ? 1 : -1)))];
    if (next) $("a", next).focus();
  }
  if (e.key === "x") $("input.pick", document.activeElement.closest("tr") ?? document.createElement("i"))?.click();
});

times();
charts.all();
picked();
live.open();
