// Elements and numbers. Texts only ever become text nodes: a transcript is never read as HTML.

const SVG = "http://www.w3.org/2000/svg";

/** An element. `options`: class, text, title, on (listeners), and any attribute. */
export function el(tag, options = {}, children = []) {
  return fill(document.createElement(tag), options, children);
}

/** An element of a drawing. */
export function svg(tag, options = {}, children = []) {
  return fill(document.createElementNS(SVG, tag), options, children);
}

function fill(node, options, children) {
  for (const [name, value] of Object.entries(options)) {
    if (value === null || value === undefined || value === false) continue;
    if (name === "text") node.textContent = value;
    else if (name === "class") node.setAttribute("class", value);
    else if (name === "on") Object.entries(value).forEach(([event, listener]) => node.addEventListener(event, listener));
    else node.setAttribute(name, value === true ? "" : value);
  }
  node.append(...children.filter((child) => child !== null && child !== undefined));
  return node;
}

export function replace(node, ...children) {
  node.replaceChildren(...children.filter((child) => child !== null && child !== undefined));
}

/** A share as people read it: 0.123 is 12.3 %. */
export function percent(rate) {
  if (rate === null || rate === undefined) return "–";
  const value = 100 * rate;
  return `${value >= 999.5 ? Math.round(value) : value.toFixed(1)} %`;
}

/** A change of a share in percentage points, with its sign. */
export function points(change) {
  if (change === null || change === undefined) return "";
  const value = 100 * change;
  if (Math.abs(value) < 0.05) return "±0";
  return `${value > 0 ? "+" : "−"}${Math.abs(value).toFixed(1)}`;
}

export function seconds(value) {
  return value ? `${value.toFixed(1)} s` : "";
}

export function count(value, one, many) {
  return `${value.toLocaleString("en")} ${value === 1 ? one : many}`;
}

/** An icon button. */
export function button(text, title, listener, kind = "button") {
  return el("button", { class: kind, type: "button", text, title, "aria-label": title, on: { click: listener } });
}

/** A group of buttons of which one is pressed. */
export function segmented(label, choices, chosen, choose) {
  const buttons = choices.map(([value, text, title]) =>
    el("button", {
      type: "button", text, title, "aria-pressed": String(value === chosen), "data-value": value,
      on: { click: () => choose(value) },
    }));
  return el("div", { class: "segmented", role: "group", "aria-label": label }, buttons);
}
