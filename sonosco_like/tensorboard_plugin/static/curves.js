// Curves of error rates: the small one of an utterance, and the large one above the slider.

import { el, percent, svg } from "./dom.js";
import { chosenRuns, colourOf, modes, nameOf, state, steps } from "./state.js";

/** The error rate of one utterance over all steps; a dot at the current step. */
export function sparkline(curve, colour, share) {
  const [width, height, edge] = [92, 24, 3];
  const known = curve.filter((rate) => rate !== null);
  if (known.length < 2) return el("span", { class: "muted", text: known.length ? "one step" : "" });
  const top = Math.max(1, Math.min(2, Math.max(...known)));
  const x = (place) => edge + ((width - 2 * edge) * place) / (curve.length - 1);
  const y = (rate) => edge + (height - 2 * edge) * (1 - Math.min(rate, top) / top);
  const here = Math.round(share * (curve.length - 1));
  const label = `WER from ${percent(known[0])} to ${percent(known[known.length - 1])}`;
  return svg("svg", { class: "sparkline", width, height, role: "img", "aria-label": label }, [
    svg("title", { text: label }),
    svg("path", { d: path(curve, x, y), fill: "none", stroke: colour, "stroke-width": 1.5, "stroke-linejoin": "round" }),
    curve[here] === null || curve[here] === undefined ? null
      : svg("circle", { cx: x(here), cy: y(curve[here]), r: 2.6, fill: colour }),
  ]);
}

/** The error rates of all chosen runs; a line at the current step. */
export function timeline(width) {
  const [height, left, right, top, bottom] = [92, 44, 12, 8, 6];
  const all = steps();
  const lines = chosenRuns().flatMap((run) => modes().map((mode) => ({ run, mode, ...series(run, mode) })));
  const drawn = lines.filter((line) => line.rates.length);
  const rates = drawn.flatMap((line) => line.rates);
  const [lowest, highest] = [Math.min(...rates), Math.max(0.05, ...rates)];
  const limit = Math.min(1.05 * highest, lowest > 1 ? 2 * lowest : 1.1); // rates above 100 % are cut off
  const first = all[0], last = all[all.length - 1];
  const x = (step) => left + (width - left - right) * (last > first ? (step - first) / (last - first) : 1);
  const y = (rate) => top + (height - top - bottom) * (1 - Math.min(rate, limit) / limit);
  const marks = [0, limit / 2, limit].map((rate) => svg("g", { class: "mark" }, [
    svg("line", { x1: left, x2: width - right, y1: y(rate), y2: y(rate) }),
    svg("text", { x: left - 8, y: y(rate) + 3.5, "text-anchor": "end", text: `${Math.round(100 * rate)} %` }),
  ]));
  const curves = drawn.map((line) => svg("path", {
    d: path(line.rates, (place) => x(line.steps[place]), y), fill: "none", stroke: colourOf(line.run), "stroke-width": 2,
    "stroke-linejoin": "round", "stroke-dasharray": line.mode === "free" ? null : "5 4", class: "curve",
  }, [svg("title", { text: `${nameOf(line.run)}, ${line.mode}` })]));
  const dots = drawn.map((line) => {
    const place = line.steps.filter((step) => step <= state.step).length - 1;
    return place < 0 ? null
      : svg("circle", { cx: x(line.steps[place]), cy: y(line.rates[place]), r: 4, fill: colourOf(line.run), class: "dot" });
  });
  const here = svg("line", { class: "here", x1: x(state.step), x2: x(state.step), y1: top - 4, y2: height - bottom + 2 });
  const label = "Word error rate of the chosen runs over the steps";
  const drawing = svg("svg", { class: "timeline", width, height, role: "img", "aria-label": label },
    [...marks, here, ...curves, ...dots]);
  return { drawing, stepAt: (pixel) => nearest(all, pixel, x) };
}

function series(run, mode) {
  const found = state.runs[run][state.set];
  const pairs = found.steps.map((step, place) => [step, found.rates[mode]?.[place]?.wer]);
  const known = pairs.filter(([, rate]) => typeof rate === "number");
  return { steps: known.map(([step]) => step), rates: known.map(([, rate]) => rate) };
}

/** The step whose place is nearest to a point. */
export function nearest(all, point, place = (step) => step) {
  return all.reduce((best, step) => (Math.abs(place(step) - point) < Math.abs(place(best) - point) ? step : best), all[0]);
}

function path(values, x, y) {
  let drawn = "", on = false;
  values.forEach((value, place) => {
    if (value === null) { on = false; return; }
    drawn += `${on ? "L" : "M"}${x(place).toFixed(1)} ${y(value).toFixed(1)}`;
    on = true;
  });
  return drawn;
}
