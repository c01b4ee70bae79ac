// The keyboard.

import { el } from "./dom.js";
import { goTo, nextTheme } from "./header.js";
import { change, state, steps } from "./state.js";

const HELP = [
  ["↓ ↑ or j k", "next and previous utterance"], ["Enter", "details"], ["Space", "play or pause"],
  ["← →", "step before and after"], ["Home End", "first and newest step"], ["n p", "next and previous page"],
  ["/", "search"], ["d", "differences by word or by character"], ["c", "confusions"], ["t", "theme"], ["Esc", "close"],
];

export function makeHelp() {
  const node = el("dialog", { class: "help", "aria-label": "Keyboard shortcuts" }, [
    el("h2", { text: "Keyboard" }),
    el("dl", {}, HELP.flatMap(([keys, what]) => [el("dt", { text: keys }), el("dd", { text: what })])),
  ]);
  node.addEventListener("click", () => node.close());
  return node;
}

export function listenToKeys({ table, player, search, help }) {
  const place = () => steps().indexOf(state.step);
  const actions = {
    ArrowDown: () => table.move(1), j: () => table.move(1), ArrowUp: () => table.move(-1), k: () => table.move(-1),
    ArrowLeft: () => goTo(place() - 1), ArrowRight: () => goTo(place() + 1), Home: () => goTo(0), End: () => goTo(steps().length - 1),
    n: () => table.turn(1), p: () => table.turn(-1),
    Enter: () => state.selected && change({ panel: "details" }),
    " ": () => table.row(state.selected)?.audio && player.toggle(state.selected),
    "/": () => search.focus(),
    d: () => change({ unit: state.unit === "words" ? "characters" : "words" }),
    c: () => change({ panel: state.panel === "confusions" ? null : "confusions" }),
    t: nextTheme,
    Escape: () => change({ panel: null }),
    "?": () => help.showModal(),
  };
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || help.open) return;
    const typing = event.target.closest("input[type=search], select, textarea");
    if (typing) {
      if (event.key === "Escape") event.target.blur();
      return;
    }
    const onButton = event.target.closest("button, a") && (event.key === " " || event.key === "Enter");
    const action = actions[event.key];
    if (!action || onButton) return;
    event.preventDefault();
    action();
  });
}
