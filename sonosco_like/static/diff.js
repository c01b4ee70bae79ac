// Differences between reference and hypothesis. Each kind has its own form, not only its own colour.

import { el } from "./dom.js";

const KINDS = { s: "substituted", d: "deleted", i: "inserted" };

/** One line: the words of the hypothesis, with wrong words of the reference struck out before them. */
export function inline(lane, unit) {
  const pieces = unit === "characters" ? lane.characters : lane.words;
  const gap = unit === "characters" ? "" : " ";
  const nodes = [];
  pieces.forEach(([kind, reference, hypothesis], place) => {
    if (place && gap) nodes.push(gap);
    if (kind === "=") nodes.push(hypothesis);
    else nodes.push(el("span", { class: `edit ${KINDS[kind]}`, title: titleOf(kind, reference, hypothesis) }, [
      reference !== null ? el("del", { text: reference }) : null,
      hypothesis !== null ? el("ins", { text: hypothesis }) : null,
    ]));
  });
  if (!pieces.some(([, , hypothesis]) => hypothesis !== null)) nodes.push(el("span", { class: "silent", text: "empty hypothesis" }));
  return el("span", { class: `hypothesis ${unit}`, dir: "auto" }, nodes);
}

/** Two lines, word under word. */
export function interlinear(lane) {
  const columns = lane.words.map(([kind, reference, hypothesis]) =>
    el("span", { class: `pair ${KINDS[kind] || "equal"}`, title: kind === "=" ? null : titleOf(kind, reference, hypothesis) }, [
      el("span", { class: "reference", text: reference === null ? "·" : reference }),
      el("span", { class: "hypothesis", text: hypothesis === null ? "·" : hypothesis }),
    ]));
  if (!columns.length) columns.push(el("span", { class: "silent", text: "reference and hypothesis are empty" }));
  return el("div", { class: "interlinear", dir: "auto" }, columns);
}

function titleOf(kind, reference, hypothesis) {
  if (kind === "s") return `reference “${reference}”, hypothesis “${hypothesis}”`;
  return kind === "d" ? `“${reference}” is only in the reference` : `“${hypothesis}” is only in the hypothesis`;
}
