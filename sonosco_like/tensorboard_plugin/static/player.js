// The player: one recording plays at a time, whichever button started it.

import { el } from "./dom.js";
import { audioAddress } from "./api.js";
import { chosenRuns } from "./state.js";

export function makePlayer() {
  const audio = el("audio", { preload: "auto" });
  const followers = new Set();
  let playing = null;

  function show() {
    document.querySelectorAll("button[data-play]").forEach((node) => {
      const on = node.dataset.play === playing && !audio.paused;
      node.textContent = on ? "❚❚" : "▶";
      node.setAttribute("aria-pressed", String(on));
    });
    followers.forEach((follower) => follower(playing, audio));
  }

  function frame() {
    followers.forEach((follower) => follower(playing, audio));
    if (!audio.paused) requestAnimationFrame(frame);
  }

  ["play", "pause", "ended", "loadedmetadata", "seeked"].forEach((event) => audio.addEventListener(event, show));
  audio.addEventListener("play", frame);

  function load(id) {
    if (playing === id) return;
    playing = id;
    audio.src = audioAddress(chosenRuns()[0], id);
  }

  return {
    node: audio,
    toggle(id) {
      const on = playing === id && !audio.paused;
      load(id);
      if (on) audio.pause();
      else audio.play().catch(() => show());
    },
    seek(id, at) {
      load(id);
      if (audio.readyState) audio.currentTime = at;
      else audio.addEventListener("loadedmetadata", () => { audio.currentTime = at; }, { once: true });
    },
    button(row) {
      return el("button", {
        type: "button", class: "player", text: "▶", title: "Play (space)", "aria-label": `Play ${row.id}`, "data-play": row.id,
        on: { click: () => this.toggle(row.id) },
      });
    },
    follow(follower) { followers.add(follower); },
    refresh: show,
  };
}
