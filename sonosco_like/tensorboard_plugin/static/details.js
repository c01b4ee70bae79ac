// The details of one utterance: the aligned words, the features and the alignments of the model.

import { button, el, percent, points, replace, seconds } from "./dom.js";
import { fetchSample, isVoid } from "./api.js";
import { interlinear } from "./diff.js";
import { alignmentNode, featuresCanvas } from "./pictures.js";
import { MODES, change, chosenRuns, colourOf, nameOf, state } from "./state.js";

const TITLES = {
  attention: ["Attention", "teacher-forced: where the decoder looked for each token"],
  ctc: ["CTC", "the probability of each token in each frame; ∅ is blank"],
};

export function makeDetails(table, player, theme) {
  const node = el("div", { class: "details" });
  let shown = null;

  player.follow((id, audio) => {
    const share = id === state.selected && audio.duration ? audio.currentTime / audio.duration : null;
    node.querySelectorAll(".playhead").forEach((line) => {
      line.hidden = share === null;
      line.style.left = `${100 * (share || 0)}%`;
    });
  });

  async function draw() {
    const row = table.row(state.selected);
    if (!row) return replace(node, el("p", { class: "nothing muted", text: "Choose an utterance in the table." }));
    const pictures = el("div", { class: "pictures" });
    const fresh = shown !== row.id;
    const kept = node.querySelector(".pictures");
    if (!fresh && kept) pictures.replaceChildren(...kept.childNodes); // no flicker while the next step is fetched
    shown = row.id;
    replace(node, headOf(row, player), ...comparisons(row, table.lanes()), pictures);
    if (fresh) node.scrollTop = 0;
    if (!row.sampled) {
      return replace(pictures, el("p", { class: "note muted",
        text: "Audio and pictures are kept for a few samples only. Give this id to TranscriptDashboard as one of its `ids` to have them in the next run." }));
    }
    await drawPictures(row, pictures);
    player.refresh();
  }

  async function drawPictures(row, pictures) {
    const runs = chosenRuns();
    const groups = [];
    for (const run of runs) {
      try {
        groups.push([run, await fetchSample(run, row.id)]);
      } catch (error) {
        if (isVoid(error)) return;
        if (runs.length === 1) groups.push([run, { problem: error.message }]);
      }
    }
    if (state.selected !== row.id) return;
    const nodes = groups.flatMap(([run, sample], place) => sample.problem
      ? [el("p", { class: "note muted", text: sample.problem })]
      : picturesOf(sample, row, place === 0, runs.length > 1 ? run : null, player, theme()));
    replace(pictures, ...nodes);
  }

  return { node, draw };
}

function headOf(row, player) {
  const copy = button("Copy", "Copy id, reference and hypotheses", () => copyRow(row, copy));
  return el("div", { class: "panel-head" }, [
    row.audio ? player.button(row) : null,
    el("div", { class: "grow" }, [
      el("h2", { text: row.id, title: row.id }),
      el("span", { class: "muted", text: seconds(row.duration) }),
    ]),
    copy, button("✕", "Close (Esc)", () => change({ panel: null }), "icon"),
  ]);
}

function comparisons(row, lanes) {
  return row.lanes.map((lane, place) => {
    if (!lane) return null;
    const about = lanes[place];
    const change = lane.before === null ? "" : ` (${points(lane.wer - lane.before)})`;
    const block = el("section", { class: "comparison" }, [
      el("div", { class: "who" }, [
        el("span", { class: "swatch" }), el("span", { class: "name", text: nameOf(about.run) }),
        el("span", { class: "muted", text: `${MODES[about.mode] || about.mode}, step ${about.step.toLocaleString("en")}` }),
        el("span", { class: "grow" }),
        el("span", { class: "muted", text: `WER ${percent(lane.wer)}${change}, CER ${percent(lane.cer)}` }),
      ]),
      interlinear(lane),
    ]);
    block.style.setProperty("--run", colourOf(about.run));
    return block;
  });
}

function picturesOf(sample, row, isFirst, run, player, theme) {
  const nodes = [];
  const seek = row.audio ? (share) => player.seek(row.id, share * (sample.duration || row.duration)) : null;
  const who = run ? `${nameOf(run)}, ` : "";
  if (isFirst) nodes.push(panel("Log-mel features", "the input of the model", "", featuresCanvas(sample.features, theme), seek));
  if (sample.words.length) nodes.push(panel("Hypothesis", `${who}free-running, at the time of each word; faint: low confidence`, "", words(sample), null));
  for (const matrix of sample.alignments) {
    const { names, drawn } = alignmentNode(matrix, theme);
    const [title, about] = TITLES[matrix.name] || [matrix.name, ""];
    nodes.push(panel(title, who + about, names, drawn, seek));
  }
  nodes.push(isFirst ? axis(sample.duration || row.duration) : null);
  return nodes.filter(Boolean);
}

function panel(title, about, names, drawn, seek) {
  const plot = el("div", { class: "plot" }, [drawn, el("div", { class: "playhead", hidden: true })]);
  if (seek) {
    plot.classList.add("seekable");
    plot.addEventListener("click", (event) => {
      const box = plot.getBoundingClientRect();
      seek(Math.max(0, Math.min(1, (event.clientX - box.left) / box.width)));
    });
  }
  return el("figure", {}, [
    el("figcaption", {}, [el("b", { text: title }), el("span", { class: "muted", text: about })]),
    el("div", { class: "with-tokens" }, [names || el("div", { class: "tokens" }), plot]),
  ]);
}

function words(sample) {
  const line = el("div", { class: "spoken" });
  for (const [text, start, end, confidence] of sample.words) {
    const word = el("span", { text, title: `${text}: ${start.toFixed(2)} to ${end.toFixed(2)} s, ${Math.round(100 * confidence)} % sure` });
    word.style.left = `${(100 * start) / sample.duration}%`;
    word.style.minWidth = `${(100 * Math.max(0, end - start)) / sample.duration}%`;
    word.style.opacity = String(0.45 + 0.55 * confidence);
    line.append(word);
  }
  return line;
}

function axis(duration) {
  const step = [0.1, 0.25, 0.5, 1, 2, 5, 10, 30].find((each) => duration / each <= 8) || 60;
  const marks = Array.from({ length: Math.floor(duration / step) + 1 }, (_, number) => {
    const mark = el("span", { text: `${Number((number * step).toFixed(2))} s` });
    mark.style.left = `${(100 * number * step) / duration}%`;
    return mark;
  });
  return el("div", { class: "with-tokens axis" }, [el("div", { class: "tokens" }), el("div", { class: "plot" }, marks)]);
}

async function copyRow(row, node) {
  const lines = [`id\t${row.id}`, `reference\t${row.reference}`, ...row.lanes.filter(Boolean).map((lane) => `hypothesis\t${lane.text}`)];
  const text = lines.join("\n");
  try {
    await navigator.clipboard.writeText(text);
  } catch { // the clipboard is closed to pages that are not from this machine and not encrypted
    const area = el("textarea", { class: "aside" });
    area.value = text;
    document.body.append(area);
    area.select();
    document.execCommand("copy");
    area.remove();
  }
  node.textContent = "Copied";
  setTimeout(() => { node.textContent = "Copy"; }, 1200);
}
