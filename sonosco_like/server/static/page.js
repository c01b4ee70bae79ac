// The page of `sonosco serve`: speak or drop files, and compare what the models hear.

import { button, el, replace, segmented } from "./dom.js";
import { record } from "./recorder.js";
import { TokenNeeded, fetchHealth, fetchModels, openStream, token } from "./server.js";
import { makeTake } from "./take.js";

const HISTORY = "sonosco-takes"; // texts of this tab; recordings are gone after a reload
const state = { models: [], chosen: [], takes: [], unit: "words", collecting: false, maxSeconds: 120, recording: null, count: 0 };
let context = null;

const shared = {
  context: () => (context ||= new AudioContext()),
  unit: () => state.unit,
  models: () => state.chosen,
  collecting: () => state.collecting,
  needToken: () => askToken(),
  keep,
  remove(take) {
    state.takes = state.takes.filter((each) => each !== take);
    drawTakes();
    keep();
  },
};

const notice = el("div", { class: "notice", role: "alert", hidden: true });
const chips = el("div", { class: "chips", role: "group", "aria-label": "Models" });
const recordButton = button("● Record", "Record from the microphone (r)", toggleRecording, "record");
const cancelButton = button("Cancel", "Throw the recording away (Esc)", cancelRecording);
const level = el("meter", { min: 0, max: 1, low: 0.02, high: 0.95, optimum: 0.3, value: 0, "aria-label": "Level of the microphone" });
const clock = el("span", { class: "clock muted", role: "timer" });
const partial = el("p", { class: "partial", "aria-live": "polite", dir: "auto" });
const files = el("input", { type: "file", accept: "audio/*,video/webm,video/mp4", multiple: true, class: "files", id: "files", on: { change: () => take([...files.files]) } });
const units = el("div");
const takes = el("div", { class: "takes" });
const tokenField = el("input", { type: "password", "aria-label": "Token", autocomplete: "off" });
const tokenForm = el("form", { class: "token", hidden: true, on: { submit: takeToken } }, [
  el("label", { text: "This server needs a token: " }), tokenField, el("button", { class: "button", text: "Use it" }),
]);

function build() {
  document.body.append(
    el("header", {}, [el("h1", { text: "Speak and compare" }), chips, el("span", { class: "space" }), units]),
    el("main", {}, [
      tokenForm, notice,
      el("section", { class: "input", "aria-label": "Record or choose files" }, [
        el("div", { class: "controls" }, [
          recordButton, cancelButton, level, clock, el("span", { class: "space" }),
          el("label", { class: "button", for: "files", text: "Choose files" }), files,
          el("span", { class: "muted hint", text: "or drop them here" }),
        ]),
        partial,
      ]),
      takes,
    ]),
  );
  cancelButton.hidden = true;
  drawUnits();
}

async function start() {
  showTheme();
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", showTheme);
  build();
  listenToKeysAndDrops();
  await load();
}

async function load() {
  try {
    const health = await fetchHealth();
    state.collecting = health.collecting;
    state.maxSeconds = health.max_seconds;
    state.models = (await fetchModels()).map((model) => model.id);
    state.chosen = [...state.models];
    tokenForm.hidden = true;
    notify("");
    drawChips();
    restore();
  } catch (error) {
    if (error instanceof TokenNeeded) askToken();
    else notify(error.message);
  }
}

function askToken() {
  tokenForm.hidden = false;
  tokenField.focus();
}

function takeToken(event) {
  event.preventDefault();
  token.set(tokenField.value);
  load();
}

function drawChips() {
  replace(chips, ...state.models.map((model) => el("button", {
    type: "button", class: "chip", text: model, "aria-pressed": String(state.chosen.includes(model)), title: "Use this model",
    on: { click: () => {
      const others = state.chosen.filter((each) => each !== model);
      const next = others.length === state.chosen.length ? [...others, model] : others;
      if (next.length) state.chosen = state.models.filter((each) => next.includes(each));
      drawChips();
    } },
  })));
}

function drawUnits() {
  replace(units, segmented("Differences", [["words", "Words"], ["characters", "Characters"]], state.unit, (unit) => {
    state.unit = unit;
    drawUnits();
    state.takes.forEach((each) => each.redraw());
  }));
}

function drawTakes() {
  const none = el("p", { class: "nothing muted", text: "Press r or the red button, speak, and press it again. What each model hears appears here." });
  replace(takes, ...(state.takes.length ? state.takes.map((each) => each.node) : [none]));
}

function add(about) {
  state.takes = [makeTake(shared, about), ...state.takes];
  drawTakes();
}

function take(chosen) {
  chosen.forEach((file) => add({ name: file.name, recording: file }));
  files.value = "";
}

async function toggleRecording() {
  if (state.recording === "starting") return;
  if (state.recording) return finish();
  if (!state.models.length) return load();
  state.recording = "starting";
  notify("");
  try {
    const rate = Math.round(shared.context().sampleRate);
    const stream = openStream(state.chosen[0], rate, (text) => { partial.textContent = text; });
    let recorder;
    try {
      recorder = await record(shared.context(), { onLevel: (value) => { level.value = value; }, onSamples: stream.send });
    } catch (error) {
      stream.close();
      throw error;
    }
    const began = performance.now();
    const timer = setInterval(() => {
      const passed = (performance.now() - began) / 1000;
      clock.textContent = `${passed.toFixed(1)} s`;
      if (passed > state.maxSeconds - 1) finish();
    }, 100);
    state.recording = { recorder, stream, timer };
    showRecording();
  } catch (error) {
    state.recording = null;
    notify(error.message);
  }
}

function showRecording() {
  const on = Boolean(state.recording);
  recordButton.textContent = on ? "■ Stop" : "● Record";
  recordButton.setAttribute("aria-pressed", String(on));
  recordButton.setAttribute("aria-label", on ? "Stop and transcribe (r)" : "Record from the microphone (r)");
  cancelButton.hidden = !on;
  partial.textContent = "";
  if (!on) clock.textContent = "";
}

function leave() {
  const { recorder, stream, timer } = state.recording;
  clearInterval(timer);
  stream.close();
  state.recording = null;
  showRecording();
  return recorder;
}

async function finish() {
  const recording = await leave().stop();
  state.count += 1;
  if (recording.size) add({ name: `Recording ${state.count}`, recording });
  else notify("The browser recorded nothing.");
}

async function cancelRecording() {
  if (state.recording && state.recording !== "starting") await leave().cancel();
}

function listenToKeysAndDrops() {
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest("input, textarea, select")) return;
    if (event.key === "r") toggleRecording();
    else if (event.key === "Escape") cancelRecording();
  });
  document.addEventListener("dragover", (event) => { event.preventDefault(); document.body.classList.add("over"); });
  document.addEventListener("dragleave", (event) => { if (!event.relatedTarget) document.body.classList.remove("over"); });
  document.addEventListener("drop", (event) => {
    event.preventDefault();
    document.body.classList.remove("over");
    take([...event.dataTransfer.files]);
  });
}

function notify(text) {
  notice.textContent = text;
  notice.hidden = !text;
}

function keep() {
  const kept = state.takes.filter((each) => each.results).map(({ name, results, truth }) => ({ name, results, truth }));
  try {
    sessionStorage.setItem(HISTORY, JSON.stringify({ kept: kept.slice(0, 50), count: state.count }));
  } catch { /* a browser that keeps nothing still shows everything */ }
}

function restore() {
  if (!state.takes.length) {
    try {
      const { kept = [], count = 0 } = JSON.parse(sessionStorage.getItem(HISTORY) || "{}");
      state.count = count;
      kept.reverse().forEach((each) => add({ ...each, recording: null }));
    } catch { /* nothing was kept */ }
  }
  drawTakes();
}

function showTheme() {
  document.documentElement.dataset.theme = matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
  state.takes.forEach((each) => each.repaint());
}

start();
