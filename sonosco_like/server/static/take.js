// One recording on the page: its waveform, what each model hears, the truth, and its correction.

import { button, el, percent, replace, seconds } from "./dom.js";
import { inline } from "./diff.js";
import { TokenNeeded, compare, save, transcribe } from "./server.js";

const PATIENCE = 300; // milliseconds after the last key, until the texts are compared

/** A recording with everything about it. `shared` has context, unit, collecting, notify, needToken, keep. */
export function makeTake(shared, { name, recording, results = null, truth = "" }) {
  const take = { name, recording, results, truth, node: null };
  const waveform = el("div", { class: "waveform" });
  const heard = el("div", { class: "heard", "aria-live": "polite" });
  const status = el("p", { class: "status muted", role: "status" });
  const text = el("textarea", { rows: 2, dir: "auto", "aria-label": "What was said", placeholder: "Type what was said, to see the errors" });
  text.value = truth;
  const play = button("▶", `Play ${name}`, () => playPart(0, null), "player");
  let sound = null, playing = null, timer = 0, pairs = null;

  async function decode() {
    if (!recording) return;
    try {
      sound = await shared.context().decodeAudioData(await recording.arrayBuffer());
    } catch { /* the browser does not know this form of audio; the server may */ }
    drawWaveform();
  }

  function playPart(start, end) {
    playing?.stop();
    if (!sound) return;
    shared.context().resume();
    const node = shared.context().createBufferSource();
    node.buffer = sound;
    node.connect(shared.context().destination);
    const length = (end === null ? sound.duration : Math.min(end, sound.duration)) - start;
    node.start(0, start, length);
    playing = node;
    waveform.dataset.played = `${start.toFixed(2)} ${length.toFixed(2)}`;
    const line = waveform.querySelector(".playhead");
    const began = shared.context().currentTime;
    const move = () => {
      const at = start + Math.min(length, shared.context().currentTime - began);
      if (line) line.style.left = `${(100 * at) / sound.duration}%`;
      if (line) line.hidden = playing !== node;
      if (playing === node) requestAnimationFrame(move);
    };
    node.addEventListener("ended", () => { if (playing === node) playing = null; });
    requestAnimationFrame(move);
  }

  function drawWaveform() {
    play.disabled = !sound;
    if (!sound) return replace(waveform);
    const canvas = el("canvas", { width: 1200, height: 96, role: "img", "aria-label": `Waveform of ${name}, ${seconds(sound.duration)}` });
    paint(canvas, sound.getChannelData(0));
    canvas.addEventListener("click", (event) => {
      const box = canvas.getBoundingClientRect();
      playPart((sound.duration * (event.clientX - box.left)) / box.width, null);
    });
    replace(waveform, canvas, el("div", { class: "playhead", hidden: true }));
  }

  function drawHeard() {
    if (!take.results) return;
    replace(heard, ...take.results.map((result, place) => resultNode(result, place)));
  }

  function resultNode(result, place) {
    const pair = pairs?.[place];
    const shown = pair && !(place === 0 && !take.truth.trim()) ? inline(pair, shared.unit())
      : el("span", { class: result.text ? "plain" : "silent", dir: "auto", text: result.text || "nothing heard" });
    const rates = pair && take.truth.trim() ? `WER ${percent(pair.wer)}, CER ${percent(pair.cer)}` : "";
    const sure = result.confidence === null || result.confidence === undefined ? "" : `${Math.round(100 * result.confidence)} % sure`;
    return el("section", { class: "result", "data-model": result.model }, [
      el("div", { class: "who" }, [
        el("b", { text: result.model }), el("span", { class: "muted", text: sure }), el("span", { class: "space" }),
        el("span", { class: "rates", text: rates }),
      ]),
      el("p", { class: "text" }, [shown]),
      wordsNode(result),
    ]);
  }

  function wordsNode(result) {
    const length = sound?.duration || result.duration;
    if (!result.words.length || !length) return null;
    return el("div", { class: "words", role: "group", "aria-label": `Words of ${result.model}` }, result.words.map((word) => {
      const node = el("button", {
        type: "button", text: word.word, title: `${word.start.toFixed(2)} to ${word.end.toFixed(2)} s, ${Math.round(100 * (word.confidence || 0))} % sure`,
        "aria-label": `Play the word ${word.word}`, disabled: !recording, on: { click: () => playPart(word.start, word.end) },
      });
      node.style.left = `${Math.min(100, (100 * word.start) / length)}%`;
      node.style.width = `${Math.max(0, (100 * (word.end - word.start)) / length)}%`;
      node.style.opacity = String(0.5 + 0.5 * (word.confidence || 0));
      return node;
    }));
  }

  /** The truth against each model; without a truth, the first model against the others. */
  async function align() {
    if (!take.results) return;
    const asked = take.truth.trim();
    const reference = asked || take.results[0].text;
    try {
      const found = await compare(reference, take.results.map((result) => result.text));
      if (asked !== take.truth.trim()) return; // somebody typed on meanwhile
      pairs = found;
    } catch (error) {
      tell(error);
    }
    drawHeard();
  }

  function tell(error) {
    status.textContent = error.message;
    status.classList.add("wrong");
    if (error instanceof TokenNeeded) shared.needToken();
  }

  function say(words) {
    status.textContent = words;
    status.classList.remove("wrong");
  }

  async function listen() {
    say("Listening …");
    try {
      take.results = await transcribe(recording, shared.models());
      say("");
    } catch (error) {
      return tell(error);
    }
    drawHeard();
    shared.keep();
    await align();
  }

  async function correct() {
    try {
      const { saved, rows } = await save(recording, take.truth);
      say({ added: "Saved", changed: "The text was changed", unchanged: "This was saved before" }[saved] + `: the manifest has ${rows} ${rows === 1 ? "row" : "rows"}.`);
    } catch (error) {
      tell(error);
    }
  }

  text.addEventListener("input", () => {
    take.truth = text.value;
    keepSaveable();
    clearTimeout(timer);
    timer = setTimeout(() => { shared.keep(); align(); }, PATIENCE);
  });

  const saver = button("Save", "Save the recording with this text", correct);
  const copier = button("Take the first text", "Begin with what the first model heard", () => {
    text.value = take.results?.[0]?.text || "";
    text.dispatchEvent(new Event("input"));
    text.focus();
  });
  const keepSaveable = () => { saver.disabled = !take.truth.trim() || !recording; };
  keepSaveable();
  take.node = el("article", { class: "take", "aria-label": name }, [
    el("div", { class: "take-head" }, [
      play, el("h2", { text: name }), el("span", { class: "space" }),
      recording ? button("Again", `Transcribe ${name} again, with the models chosen now`, listen) : null,
      button("✕", `Remove ${name}`, () => shared.remove(take), "icon"),
    ]),
    waveform, heard, status,
    el("div", { class: "truth" }, [text, copier, shared.collecting() ? saver : null]),
  ]);
  take.redraw = drawHeard;
  take.repaint = drawWaveform;
  take.ready = decode().then(() => (results ? align() : listen()));
  return take;
}

function paint(canvas, samples) {
  const drawing = canvas.getContext("2d");
  const { width, height } = canvas;
  drawing.fillStyle = getComputedStyle(document.documentElement).getPropertyValue("--accent");
  const most = samples.reduce((loudest, sample) => Math.max(loudest, Math.abs(sample)), 0.01);
  const step = samples.length / width;
  for (let x = 0; x < width; x += 1) {
    let low = 0, high = 0;
    for (let place = Math.floor(x * step); place < Math.floor((x + 1) * step); place += 1) {
      low = Math.min(low, samples[place]);
      high = Math.max(high, samples[place]);
    }
    const top = (height / 2) * (1 - high / most), bottom = (height / 2) * (1 - low / most);
    drawing.fillRect(x, top, 1, Math.max(1, bottom - top));
  }
}
