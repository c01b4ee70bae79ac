// The head of the page: which runs, which validation set, which way of decoding, and the step.

import { button, el, percent, points, replace, segmented } from "./dom.js";
import { nearest, timeline } from "./curves.js";
import { MODES, change, chosenRuns, colourOf, modes, nameOf, ratesAt, sets, state, steps } from "./state.js";

export function makeHeader(showHelp) {
  const runs = el("div", { class: "runs", role: "group", "aria-label": "Runs" });
  const choices = el("div", { class: "choices" });
  const numbers = el("div", { class: "numbers" });
  const chart = el("div", { class: "chart" });
  const slider = el("input", { type: "range", class: "slider", step: 1, "aria-label": "Step" });
  const label = el("output", { class: "step" });
  const live = el("button", { type: "button", class: "live", text: "go to newest →" });
  let current = null;

  slider.addEventListener("input", () => goTo(steps().indexOf(nearest(steps(), Number(slider.value)))));
  live.addEventListener("click", () => goTo(steps().length - 1));
  chart.addEventListener("pointerdown", (event) => {
    if (!current) return;
    chart.setPointerCapture(event.pointerId);
    pick(event);
  });
  chart.addEventListener("pointermove", (event) => event.buttons && current && pick(event));
  const pick = (event) => {
    const step = current.stepAt(event.clientX - chart.getBoundingClientRect().left);
    goTo(steps().indexOf(step));
  };

  function drawChart() {
    if (!chart.clientWidth || !steps().length) return;
    current = timeline(chart.clientWidth);
    replace(chart, current.drawing);
  }

  function drawRuns() {
    replace(runs, ...Object.keys(state.runs).map((run) => {
      const pressed = state.chosen.includes(run);
      const chip = el("button", {
        type: "button", class: "chip", "aria-pressed": String(pressed), title: run, "data-run": run,
        on: { click: () => toggle(run) },
      }, [el("span", { class: "swatch" }), el("span", { text: nameOf(run) })]);
      chip.style.setProperty("--run", colourOf(run));
      return chip;
    }));
  }

  function drawChoices() {
    const there = new Set(chosenRuns().flatMap((run) => state.runs[run][state.set].modes));
    const shown = Object.keys(MODES).filter((mode) => there.has(mode));
    const buttons = shown.map((mode) => [mode, capital(MODES[mode]), TITLES[mode]]);
    if (shown.length > 1) buttons.push(["both", "Both", "Both, one above the other"]);
    const names = sets();
    const pressed = shown.length > 1 ? state.mode : shown[0];
    replace(choices,
      names.length > 1 ? segmented("Validation set", names.map((name) => [name, name]), state.set, (set) => change({ set })) : null,
      shown.length ? segmented("Decoding", buttons, pressed, (mode) => change({ mode })) : null,
      button({ auto: "◐", light: "☀", dark: "☾" }[state.theme], `Theme: ${state.theme} (t)`, nextTheme, "icon"),
      button("?", "Keyboard shortcuts (?)", showHelp, "icon"));
  }

  function drawNumbers() {
    const lanes = chosenRuns().flatMap((run) => modes().map((mode) => ({ run, mode, ...ratesAt(run, mode, state.step) })));
    replace(numbers, ...lanes.filter((lane) => lane.now).map((lane) => {
      const change = lane.before ? lane.now.wer - lane.before.wer : null;
      const card = el("div", { class: "card" }, [
        el("div", { class: "who" }, [
          el("span", { class: "swatch" }), el("span", { class: "name", text: nameOf(lane.run), title: lane.run }),
          modes().length > 1 ? el("span", { class: "muted", text: MODES[lane.mode] || lane.mode }) : null,
          lane.step !== state.step ? el("span", { class: "muted", text: `at ${lane.step}` }) : null,
        ]),
        el("div", { class: "figures" }, [
          figure("WER", percent(lane.now.wer), change), figure("CER", percent(lane.now.cer), null),
        ]),
      ]);
      card.style.setProperty("--run", colourOf(lane.run));
      return card;
    }));
  }

  function drawSlider() {
    const all = steps();
    slider.min = all[0] ?? 0;
    slider.max = all[all.length - 1] ?? 0;
    slider.value = state.step;
    slider.disabled = all.length < 2;
    slider.setAttribute("aria-valuetext", `step ${state.step}`);
    label.textContent = `Step ${state.step.toLocaleString("en")}`;
    live.hidden = state.following;
  }

  new ResizeObserver(drawChart).observe(chart);
  const node = el("header", {}, [
    el("div", { class: "bar" }, [runs, choices]),
    el("div", { class: "overview" }, [
      el("div", { class: "summary" }, [el("div", { class: "position" }, [label, live]), numbers]),
      el("div", { class: "time" }, [chart, slider]),
    ]),
  ]);
  return {
    node,
    draw(changed) {
      if (hits(changed, ["runs", "chosen"])) drawRuns();
      if (hits(changed, ["runs", "chosen", "set", "mode", "theme"])) drawChoices();
      if (hits(changed, ["runs", "chosen", "set", "mode", "step", "following"])) { drawNumbers(); drawSlider(); drawChart(); }
    },
  };
}

const TITLES = {
  free: "Hypotheses of the decoder without any reference",
  teacher_forced: "Output of the decoder when each step is given the reference so far: not recognition",
};

/** Go to the step at a place in the list of all; at the last one, stay at the newest. */
export function goTo(place) {
  const all = steps();
  if (!all.length) return;
  const inside = Math.max(0, Math.min(all.length - 1, place));
  change({ step: all[inside], following: inside === all.length - 1 });
}

export function nextTheme() {
  change({ theme: { auto: "light", light: "dark", dark: "auto" }[state.theme] });
}

function toggle(run) {
  const chosen = state.chosen.includes(run) ? state.chosen.filter((each) => each !== run) : [...state.chosen, run];
  if (chosen.length) change({ chosen });
}

function figure(name, value, change) {
  const direction = change === null || Math.abs(change) < 0.0005 ? "" : change < 0 ? "better" : "worse";
  return el("div", { class: "figure" }, [
    el("span", { class: "muted", text: name }), el("span", { class: "value", text: value }),
    change === null ? null : el("span", { class: `change ${direction}`, text: points(change), title: "since the step before" }),
  ]);
}

const capital = (text) => text[0].toUpperCase() + text.slice(1);
const hits = (changed, names) => !changed || names.some((name) => changed.has(name));
