// The table of utterances, one page at a time, and the tools above it.

import { button, count, el, percent, points, replace, seconds, segmented } from "./dom.js";
import { csvAddress } from "./api.js";
import { sparkline } from "./curves.js";
import { inline } from "./diff.js";
import { MODES, change, chosenRuns, colourOf, nameOf, state } from "./state.js";

const COLUMNS = [
  ["", null, "play"], ["Utterance", "id", "text"], ["WER", "wer", "number"], ["CER", "cer", "number"],
  ["Change", "change", "number"], ["WER over steps", null, "curve"], ["Length", "duration", "number"],
];
const FILTERS = {
  all: "all utterances", wrong: "with errors", right: "without errors", improved: "improved", worsened: "got worse",
  audio: "with audio",
};
const VIEWS = {
  worst: { sort: "wer", order: "desc", filter: "all" },
  improved: { sort: "change", order: "asc", filter: "improved" },
};

export function makeTools(search) {
  const node = el("div", { class: "tools", role: "toolbar", "aria-label": "Utterances" });
  let timer = 0;
  search.addEventListener("input", () => {
    clearTimeout(timer);
    timer = setTimeout(() => change({ search: search.value }), 200);
  });
  return {
    node,
    draw() {
      const view = Object.keys(VIEWS).find((name) => Object.entries(VIEWS[name]).every(([key, value]) => state[key] === value));
      const filter = el("select", { "aria-label": "Filter", on: { change: (event) => change({ filter: event.target.value }) } },
        Object.entries(FILTERS).map(([value, text]) => el("option", { value, text, selected: value === state.filter })));
      replace(node,
        search,
        segmented("View", [["worst", "Worst", "Highest WER first"], ["improved", "Most improved", "Since the step before"]],
          view, (name) => change(VIEWS[name])),
        filter,
        el("span", { class: "space" }),
        segmented("Differences", [["words", "Words"], ["characters", "Characters"]], state.unit, (unit) => change({ unit })),
        toggle("Confusions", "The most frequent word errors (c)", "confusions"),
        el("a", { class: "button", href: csvAddress(), download: "transcripts.csv", text: "CSV",
          title: "All rows of this selection as a file" }));
    },
  };
}

function toggle(text, title, panel) {
  return el("button", {
    type: "button", class: "button", text, title, "aria-pressed": String(state.panel === panel),
    on: { click: () => change({ panel: state.panel === panel ? null : panel }) },
  });
}

export function makeTable(player) {
  const head = el("thead");
  const table = el("table", {}, [head]);
  const pager = el("nav", { class: "pager", "aria-label": "Pages" });
  const node = el("section", { class: "rows", "aria-label": "Transcripts" }, [table, pager]);
  let page = null;
  const curves = new Map(); // they do not depend on the step, so they are fetched once for each row

  function drawHead() {
    replace(head, el("tr", {}, COLUMNS.map(([text, sort, kind]) => {
      if (!sort) return el("th", { class: kind, text, scope: "col" });
      const on = state.sort === sort;
      const arrow = on ? (state.order === "desc" ? " ↓" : " ↑") : "";
      return el("th", { class: kind, scope: "col", "aria-sort": on ? (state.order === "desc" ? "descending" : "ascending") : null },
        [el("button", { type: "button", class: on ? "on" : "", text: text + arrow, title: `Sort by ${text.toLowerCase()}`,
          "data-sort": sort, on: { click: () => sortBy(sort, on) } })]);
    })));
  }

  function drawRows() {
    drawHead();
    const rows = page.rows.map((row) => bodyOf(row, page.lanes, player, curves));
    replace(table, head, ...rows);
    node.classList.toggle("empty", !rows.length);
    drawPager(rows.length);
    mark();
    player.refresh();
  }

  function drawPager(shown) {
    if (!shown) return replace(pager, emptyState());
    const first = state.offset + 1, last = state.offset + shown;
    const of = page.total === page.all ? count(page.total, "utterance", "utterances")
      : `${page.total.toLocaleString("en")} of ${count(page.all, "utterance", "utterances")}`;
    const pages = page.total > state.limit;
    replace(pager,
      el("span", { class: "muted", text: pages ? `${first}–${last} of ${of}` : of }),
      pages ? button("‹ Previous", "Previous page (p)", () => turn(-1)) : null,
      pages ? button("Next ›", "Next page (n)", () => turn(1)) : null);
  }

  function turn(pages) {
    const offset = state.offset + pages * state.limit;
    if (page && offset >= 0 && offset < page.total) change({ offset });
  }

  function mark() {
    for (const body of table.tBodies) body.classList.toggle("selected", body.dataset.id === state.selected);
  }

  function move(by) {
    const ids = page ? page.rows.map((row) => row.id) : [];
    if (!ids.length) return;
    const place = ids.indexOf(state.selected);
    const next = place < 0 ? 0 : Math.max(0, Math.min(ids.length - 1, place + by));
    change({ selected: ids[next] });
    table.tBodies[next].scrollIntoView({ block: "nearest" });
  }

  return {
    node, move, turn, mark,
    row: (id) => page?.rows.find((row) => row.id === id),
    lanes: () => page?.lanes || [],
    show(found) { page = found; drawRows(); },
    lacksCurves: () => page.rows.some((row) => row.lanes.some((lane, place) => lane && !curves.has(keyOf(page.lanes[place], row.id)))),
    forgetCurves: () => curves.clear(),
    addCurves(found) {
      found.curves.forEach((byId, place) =>
        Object.entries(byId).forEach(([id, curve]) => curves.set(keyOf(found.lanes[place], id), curve)));
      drawRows();
    },
    redraw() { if (page) drawRows(); },
    wait(on) { node.classList.toggle("waiting", on); },
  };
}

const keyOf = (lane, id) => JSON.stringify([lane.run, lane.mode, id]);

function sortBy(sort, on) {
  const first = sort === "change" || sort === "id" ? "asc" : "desc";
  change({ sort, order: on ? (state.order === "desc" ? "asc" : "desc") : first });
}

function bodyOf(row, lanes, player, curves) {
  const open = () => change({ selected: row.id, panel: "details" });
  const reference = el("tr", { class: "reference-row" }, [
    el("td", { class: "play" }, [row.audio ? player.button(row) : null]),
    el("td", { class: "text" }, [el("div", { class: "clamp" }, [
      el("bdi", { class: row.reference ? "reference" : "reference silent", text: row.reference || "empty reference" }),
      el("span", { class: "id", text: row.id, title: row.id }),
    ])]),
    ...Array.from({ length: 4 }, () => el("td")),
    el("td", { class: "number muted", text: seconds(row.duration) }),
  ]);
  const hypotheses = row.lanes.map((lane, place) => laneRow(lane, lanes[place], lanes.length > 1, curves.get(keyOf(lanes[place], row.id))));
  const body = el("tbody", { "data-id": row.id, tabindex: -1, on: { click: (event) => {
    if (!event.target.closest("button, a") && !String(getSelection())) open();
  } } }, [reference, ...hypotheses]);
  return body;
}

function laneRow(lane, about, named, curve) {
  const colour = colourOf(about.run);
  if (!lane) {
    return el("tr", { class: "lane" }, [el("td"), el("td", { class: "text muted", text: `not in ${nameOf(about.run)}` }),
      ...Array.from({ length: 5 }, () => el("td"))]);
  }
  const change = lane.before === null ? null : lane.wer - lane.before;
  const direction = change === null || Math.abs(change) < 0.0005 ? "" : change < 0 ? "better" : "worse";
  const tag = named ? el("span", { class: "tag", title: `${about.run}, ${MODES[about.mode]}, step ${about.step}` }, [
    el("span", { class: "swatch" }), tagText(about)]) : null;
  const line = el("tr", { class: lane.errors ? "lane" : "lane right" }, [
    el("td"),
    el("td", { class: "text" }, [el("div", { class: "clamp" }, [tag, inline(lane, state.unit)])]),
    el("td", { class: "number wer", text: percent(lane.wer) }),
    el("td", { class: "number", text: percent(lane.cer) }),
    el("td", { class: `number change ${direction}`, text: points(change) }),
    el("td", { class: "curve" }, [curve ? sparkline(curve, colour, shareOf(about)) : null]),
    el("td"),
  ]);
  line.style.setProperty("--run", colour);
  return line;
}

function tagText(about) {
  const parts = [];
  if (chosenRuns().length > 1) parts.push(nameOf(about.run));
  if (state.mode === "both") parts.push(MODES[about.mode] || about.mode);
  return parts.join(" · ");
}

function shareOf(about) {
  const all = state.runs[about.run]?.[state.set]?.steps || [];
  return all.length > 1 ? Math.max(0, all.indexOf(about.step)) / (all.length - 1) : 0;
}

function emptyState() {
  return el("div", { class: "nothing" }, [
    el("p", { class: "big", text: "No utterance matches." }),
    button("Show all utterances", "Clear filter and search", () => {
      document.querySelector("input[type=search]").value = "";
      change({ filter: "all", search: "" });
    }),
  ]);
}
