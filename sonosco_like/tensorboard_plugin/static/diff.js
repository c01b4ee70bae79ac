// Differences between what was said and what was heard. Each kind has its own form, not only its own colour.

import { el } from "./dom.js";

const KINDS = { s: "substituted", d: "deleted", i: "inserted" };

/** One line: heard words, with what was said instead struck out before them. */
export function inline(lane, unit) {
  const pieces = unit === "characters" ? lane.characters : lane.words;
  const gap = unit === "characters" ? "" : " ";
  const nodes = [];
  pieces.forEach(([kind, said, heard], place) => {
    if (place && gap) nodes.push(gap);
    if (kind === "=") nodes.push(heard);
    else nodes.push(el("span", { class: `edit ${KINDS[kind]}`, title: titleOf(kind, said, heard) }, [
      said !== null ? el("del", { text: said }) : null,
      heard !== null ? el("ins", { text: heard }) : null,
    ]));
  });
  if (!pieces.some(([, , heard]) => heard !== null)) nodes.push(el("span", { class: "silent", text: "nothing was heard" }));
  return el("span", { class: `heard ${unit}`, dir: "auto" }, nodes);
}

/** Two lines, word under word. */
export function interlinear(lane) {
  const columns = lane.words.map(([kind, said, heard]) =>
    el("span", { class: `pair ${KINDS[kind] || "equal"}`, title: kind === "=" ? null : titleOf(kind, said, heard) }, [
      el("span", { class: "said", text: said === null ? "·" : said }),
      el("span", { class: "got", text: heard === null ? "·" : heard }),
    ]));
  if (!columns.length) columns.push(el("span", { class: "silent", text: "nothing was said, and nothing was heard" }));
  return el("div", { class: "interlinear", dir: "auto" }, columns);
}

function titleOf(kind, said, heard) {
  if (kind === "s") return `said “${said}”, heard “${heard}”`;
  return kind === "d" ? `said “${said}”, not heard` : `heard “${heard}”, not said`;
}
