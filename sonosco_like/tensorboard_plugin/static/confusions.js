// The most frequent word errors, over all utterances of the validation.

import { button, el, replace } from "./dom.js";
import { fetchConfusions, isVoid } from "./api.js";
import { MODES, change, chosenRuns, modes, nameOf, state } from "./state.js";

export function makeConfusions(search) {
  const node = el("div", { class: "confusions" });

  async function draw() {
    const head = el("div", { class: "panel-head" }, [
      el("div", { class: "grow" }, [
        el("h2", { text: "Confusions" }),
        el("span", { class: "muted", text: `${nameOf(chosenRuns()[0] || "")}, ${MODES[modes()[0]] || ""}, step ${state.step.toLocaleString("en")}` }),
      ]),
      button("✕", "Close (Esc)", () => change({ panel: null }), "icon"),
    ]);
    try {
      const found = await fetchConfusions();
      const none = !Object.values(found).some((list) => list.length);
      replace(node, head, none ? el("p", { class: "nothing muted", text: "Every word was recognised correctly." }) : null,
        list("Substituted", "reference → hypothesis", found.substitutions, look),
        list("Deleted", "only in the reference", found.deletions, look),
        list("Inserted", "only in the hypothesis", found.insertions, look));
    } catch (error) {
      if (!isVoid(error)) replace(node, head, el("p", { class: "note muted", text: error.message }));
    }
  }

  const look = (word) => {
    search.value = word;
    change({ search: word });
  };

  return { node, draw };
}

function list(title, about, entries, look) {
  if (!entries.length) return null;
  const most = entries[0][2];
  return el("section", {}, [
    el("h3", {}, [el("span", { text: title }), el("span", { class: "muted", text: about })]),
    el("ol", {}, entries.map(([reference, hypothesis, times]) => {
      const line = el("li", { title: "Show the utterances", on: { click: () => look(reference || hypothesis) } }, [
        el("span", { class: "pairing", dir: "auto" }, [
          reference ? el("span", { text: reference }) : null,
          reference && hypothesis ? el("span", { class: "arrow", text: "→" }) : null,
          hypothesis ? el("b", { text: hypothesis }) : null,
        ]),
        el("span", { class: "bar-of" }), el("span", { class: "times", text: String(times) }),
      ]);
      line.style.setProperty("--share", `${(100 * times) / most}%`);
      return line;
    })),
  ]);
}
