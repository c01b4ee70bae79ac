// Features and alignments on one time axis. Numbers come as bytes; colours are chosen here, to suit the theme.

import { el } from "./dom.js";

const LOUD = {
  light: [[250, 250, 252], [214, 219, 240], [150, 148, 214], [98, 70, 168], [44, 20, 90]],
  dark: [[21, 24, 30], [60, 30, 92], [150, 44, 102], [232, 104, 60], [254, 224, 150]],
};
const SURE = {
  light: [[255, 255, 255], [207, 224, 250], [120, 165, 240], [47, 111, 222], [12, 50, 120]],
  dark: [[21, 24, 30], [28, 52, 92], [47, 111, 222], [130, 180, 255], [235, 244, 255]],
};

/** The features: low ones at the bottom. */
export function featuresCanvas(matrix, theme) {
  const node = canvas(matrix, LOUD[theme], true);
  node.classList.add("features");
  return node;
}

/** A row for each token, with its name at the left. */
export function alignmentNode(matrix, theme) {
  const height = Math.max(9, Math.min(16, 420 / Math.max(1, matrix.rows)));
  const drawn = canvas(matrix, SURE[theme], false);
  drawn.style.height = `${height * matrix.rows}px`;
  const names = el("div", { class: "tokens", "aria-hidden": "true" },
    matrix.tokens.map((token) => {
      const name = el("span", { text: token, title: token });
      name.style.height = `${height}px`;
      name.style.fontSize = `${Math.min(11, height - 1)}px`;
      return name;
    }));
  return { names, drawn };
}

function canvas(matrix, anchors, smooth) {
  const node = el("canvas", { width: Math.max(1, matrix.columns), height: Math.max(1, matrix.rows) });
  if (!matrix.rows || !matrix.columns) return node;
  const bytes = Uint8Array.from(atob(matrix.values), (character) => character.charCodeAt(0));
  const table = colours(anchors, smooth ? 1 : 0.5); // small weights should be visible too
  const image = new ImageData(matrix.columns, matrix.rows);
  bytes.forEach((value, place) => image.data.set(table[value], 4 * place));
  node.getContext("2d").putImageData(image, 0, 0);
  node.classList.toggle("smooth", smooth);
  return node;
}

function colours(anchors, gamma) {
  return Array.from({ length: 256 }, (_, value) => {
    const place = (value / 255) ** gamma * (anchors.length - 1);
    const low = Math.min(anchors.length - 2, Math.floor(place));
    const mixed = anchors[low].map((from, channel) => from + (anchors[low + 1][channel] - from) * (place - low));
    return [...mixed, 255];
  });
}
