// The Transcripts dashboard. TensorBoard loads this module into a frame of its own and calls `render`.

import { el, replace } from "./dom.js";
import { fetchCurves, fetchRows, fetchRuns, isVoid } from "./api.js";
import { makeConfusions } from "./confusions.js";
import { makeDetails } from "./details.js";
import { makeHeader } from "./header.js";
import { listenToKeys, makeHelp } from "./keys.js";
import { makePlayer } from "./player.js";
import { onChange, restore, sets, state, steps } from "./state.js";
import { makeTable, makeTools } from "./table.js";

const RELOAD = 5000; // milliseconds, as often as TensorBoard itself looks for new data
const ASKED = ["chosen", "set", "step", "mode", "sort", "order", "filter", "search", "offset"];

export async function render() {
  document.documentElement.lang = "en";
  for (const name of ["shared.css", "style.css"]) document.head.append(el("link", { rel: "stylesheet", href: `static/${name}` }));
  restore();
  const app = build();
  showTheme();
  watchTheme();
  await reload(app);
  setInterval(() => document.visibilityState === "visible" && reload(app), RELOAD);
  document.addEventListener("visibilitychange", () => document.visibilityState === "visible" && reload(app));
}

function build() {
  const search = el("input", { type: "search", placeholder: "Search texts and ids   /", "aria-label": "Search", spellcheck: "false" });
  const help = makeHelp();
  const player = makePlayer();
  const header = makeHeader(() => help.showModal());
  const tools = makeTools(search);
  const table = makeTable(player);
  const details = makeDetails(table, player, currentTheme);
  const confusions = makeConfusions(search);
  const side = el("aside", { hidden: true, "aria-label": "Details" });
  const notice = el("div", { class: "notice", role: "alert", hidden: true });
  const main = el("main", {}, [tools.node, notice, el("div", { class: "columns" }, [table.node, side])]);
  const app = { header, tools, table, details, confusions, side, notice, main, body: el("div", { class: "app" }) };
  document.body.append(app.body, help, player.node);
  replace(app.body, el("div", { class: "welcome muted", text: "Looking for transcripts …" }));
  listenToKeys({ table, player, search, help });
  onChange((changed) => draw(app, changed));
  return app;
}

function draw(app, changed) {
  if (changed.has("theme")) showTheme();
  if (changed.has("chosen") || changed.has("set")) stayInside();
  app.header.draw(changed);
  if (changed.has("selected")) app.table.mark();
  if (changed.has("unit")) app.table.redraw();
  app.tools.draw();
  if (ASKED.some((name) => changed.has(name)) || changed.has("runs")) return loadRows(app);
  drawSide(app, changed);
}

/** After a change of runs or set, choose a step that they have. */
function stayInside() {
  const all = steps();
  if (!all.length) return;
  if (state.following || state.step > all[all.length - 1]) state.step = all[all.length - 1];
  else if (!all.includes(state.step)) state.step = all.filter((step) => step <= state.step).pop() ?? all[0];
}

function drawSide(app, changed) {
  const parts = { details: app.details, confusions: app.confusions };
  const part = parts[state.panel];
  app.side.hidden = !part;
  app.main.classList.toggle("with-side", Boolean(part));
  if (!part) return;
  if (app.side.firstChild !== part.node) replace(app.side, part.node);
  const matters = state.panel === "details" ? ["selected", "panel", "theme", "rows", "unit"] : ["panel", "rows"];
  if (matters.some((name) => changed.has(name))) part.draw();
}

async function loadRows(app) {
  if (!steps().length) return;
  app.table.wait(true);
  try {
    app.table.show(await fetchRows());
    notify(app, "");
    drawSide(app, new Set(["rows"]));
    app.table.wait(false);
    if (app.table.lacksCurves()) app.table.addCurves(await fetchCurves());
  } catch (error) {
    if (isVoid(error)) return;
    app.table.wait(false);
    notify(app, error.message);
  }
}

async function reload(app) {
  let found;
  try {
    found = await fetchRuns(state.mark);
    notify(app, "");
  } catch (error) {
    if (!isVoid(error)) notify(app, `The server does not answer: ${error.message}`);
    return;
  }
  if (!found.runs) return; // nothing is new
  state.mark = found.mark;
  app.table.forgetCurves();
  state.runs = found.runs;
  const names = Object.keys(state.runs);
  if (!names.length) return replace(app.body, welcome());
  if (!app.main.isConnected) replace(app.body, app.header.node, app.main);
  const chosen = state.chosen.filter((run) => names.includes(run));
  const known = sets();
  if (!known.includes(state.set)) state.set = known.includes("val") ? "val" : known[0];
  const first = names.filter((run) => state.runs[run][state.set]);
  state.chosen = chosen.length ? chosen : first.slice(0, 1);
  stayInside();
  draw(app, new Set(["runs", "chosen", "set", "step"]));
}

function notify(app, text) {
  app.notice.textContent = text;
  app.notice.hidden = !text;
}

function welcome() {
  return el("div", { class: "welcome" }, [
    el("h1", { text: "No transcripts yet" }),
    el("p", { text: "The transcripts of a run are shown here after its first validation. Its config needs these callbacks:" }),
    el("pre", {}, [el("code", { text: "callbacks:\n- {class: TensorBoardCallback}\n- {class: TranscriptDashboard}" })]),
    el("p", { class: "muted", text: "This page looks again every few seconds." }),
  ]);
}

// A class of TensorBoard's own page tells whether its theme is dark.
function currentTheme() {
  if (state.theme !== "auto") return state.theme;
  try {
    if (window.parent !== window) return window.parent.document.body.classList.contains("dark-mode") ? "dark" : "light";
  } catch { /* the frame belongs to another site */ }
  return matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
}

function showTheme() {
  document.documentElement.dataset.theme = currentTheme();
}

function watchTheme() {
  const update = () => showTheme();
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", update);
  try {
    if (window.parent !== window) {
      new MutationObserver(update).observe(window.parent.document.body, { attributes: true, attributeFilter: ["class"] });
    }
  } catch { /* the frame belongs to another site */ }
}
