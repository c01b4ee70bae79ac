// The state of the page. `change` changes it and calls every listener.

const KEPT = "sonosco-transcripts";
const COLOURS = ["#2f6fde", "#d9730d", "#1f8a5b", "#a348c9", "#c0392b", "#0f8b99", "#8a6d1b", "#5b6472"];

export const MODES = { free: "free-running", teacher_forced: "teacher-forced" };

export const state = {
  runs: {}, // by name, then by validation set: steps, modes, rates
  mark: "", // a checksum of the runs, so that they are sent again only if they changed
  chosen: [], // names of runs
  set: "",
  step: 0,
  following: true, // whether the step is always the newest
  mode: "free", // or teacher_forced, or both
  unit: "words", // or characters
  sort: "wer", order: "desc", filter: "all", search: "",
  offset: 0, limit: 50,
  selected: null, // id of an utterance
  panel: null, // details, confusions
  theme: "auto",
};

const listeners = [];

export function onChange(listener) {
  listeners.push(listener);
}

/** Change the state. A change of the query goes back to the first page. */
export function change(values) {
  const asks = ["chosen", "set", "mode", "sort", "order", "filter", "search"];
  if (asks.some((name) => name in values) && !("offset" in values)) values = { ...values, offset: 0 };
  const changed = new Set(Object.keys(values).filter((name) => state[name] !== values[name]));
  Object.assign(state, values);
  if (changed.has("theme") || changed.has("unit")) keep();
  if (changed.size) listeners.forEach((listener) => listener(changed));
}

function keep() {
  try {
    localStorage.setItem(KEPT, JSON.stringify({ theme: state.theme, unit: state.unit }));
  } catch { /* a browser that keeps nothing still shows everything */ }
}

export function restore() {
  try {
    const { theme, unit } = JSON.parse(localStorage.getItem(KEPT) || "{}");
    if (["auto", "light", "dark"].includes(theme)) state.theme = theme;
    if (["words", "characters"].includes(unit)) state.unit = unit;
  } catch { /* nothing was kept */ }
}

/** The runs that can be looked at, with the one validation set that was chosen. */
export function chosenRuns() {
  return state.chosen.filter((run) => state.runs[run]?.[state.set]);
}

export function sets() {
  return [...new Set(Object.values(state.runs).flatMap((run) => Object.keys(run)))].sort();
}

/** All steps at which any chosen run was validated. */
export function steps() {
  const all = chosenRuns().flatMap((run) => state.runs[run][state.set].steps);
  return [...new Set(all)].sort((a, b) => a - b);
}

/** The ways of decoding to ask for. */
export function modes() {
  const there = new Set(chosenRuns().flatMap((run) => state.runs[run][state.set].modes));
  const wanted = state.mode === "both" ? ["free", "teacher_forced"] : [state.mode];
  const found = wanted.filter((mode) => there.has(mode));
  return found.length ? found : [...there];
}

export function colourOf(run) {
  return COLOURS[Object.keys(state.runs).indexOf(run) % COLOURS.length] || COLOURS[0];
}

/** The name of a run without the folder that all runs end with; a run that is served alone ends with a dot. */
export function nameOf(run) {
  return run.replace(/\/(tensorboard|\.)$/, "") || run;
}

/** The error rates of a run at the last validation up to a step, and at the one before it. */
export function ratesAt(run, mode, step) {
  const found = state.runs[run]?.[state.set];
  const rates = found?.rates[mode];
  if (!rates) return { now: null, before: null, step: null };
  const place = found.steps.filter((each) => each <= step).length - 1;
  return { now: rates[place] || null, before: rates[place - 1] || null, step: found.steps[place] ?? null };
}
