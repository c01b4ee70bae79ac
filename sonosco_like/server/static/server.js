// Requests to the server. The token, where there is one, stays in this tab.

const KEY = "sonosco-token";

export const token = {
  get: () => sessionStorage.getItem(KEY) || "",
  set: (value) => sessionStorage.setItem(KEY, value.trim()),
};

export class TokenNeeded extends Error {}

async function ask(path, options = {}) {
  const headers = { ...options.headers, ...(token.get() ? { Authorization: `Bearer ${token.get()}` } : {}) };
  let response;
  try {
    response = await fetch(path, { ...options, headers });
  } catch {
    throw new Error("The server does not answer. Is it still running?");
  }
  const content = await response.json().catch(() => ({}));
  if (response.status === 401) throw new TokenNeeded(content.error?.message);
  if (!response.ok) throw new Error(content.error?.message || `The server answered with ${response.status}.`);
  return content;
}

export const fetchHealth = () => ask("healthz");

export const fetchModels = async () => (await ask("v1/models")).data;

/** What each of the models hears, in their order. */
export async function transcribe(recording, models) {
  const form = new FormData();
  form.append("file", recording, "recording");
  models.forEach((model) => form.append("model", model));
  return (await ask("v1/transcribe", { method: "POST", body: form })).results;
}

/** Each hypothesis aligned with the reference. */
export async function compare(reference, hypotheses) {
  const body = JSON.stringify({ reference, hypotheses });
  return (await ask("v1/compare", { method: "POST", body, headers: { "Content-Type": "application/json" } })).pairs;
}

export function save(recording, text) {
  const form = new FormData();
  form.append("file", recording, "recording");
  form.append("text", text);
  return ask("v1/corrections", { method: "POST", body: form });
}

/** A stream of samples to one model; `hear` is called with each text so far. */
export function openStream(model, rate, hear) {
  const address = new URL("v1/stream", location.href);
  address.protocol = address.protocol === "https:" ? "wss:" : "ws:";
  const socket = new WebSocket(address);
  socket.binaryType = "arraybuffer";
  socket.addEventListener("open", () => socket.send(JSON.stringify({ model, sample_rate: rate, token: token.get() })));
  socket.addEventListener("message", ({ data }) => {
    const message = JSON.parse(data);
    if (message.type === "partial") hear(message.text);
  });
  return {
    send(samples) {
      if (socket.readyState !== WebSocket.OPEN) return;
      const whole = Int16Array.from(samples, (sample) => Math.max(-1, Math.min(1, sample)) * 32767);
      socket.send(whole.buffer);
    },
    close: () => socket.close(),
  };
}
