// Requests to TensorBoard. Addresses are relative: TensorBoard may be below any path.

import { chosenRuns, modes, state } from "./state.js";

const underWay = new Map();

/** The JSON of an address. A newer request of the same kind cancels an older one. */
async function ask(kind, address) {
  underWay.get(kind)?.abort();
  const controller = new AbortController();
  underWay.set(kind, controller);
  const response = await fetch(address, { signal: controller.signal });
  const content = await response.json().catch(() => ({}));
  if (!response.ok) throw new Error(content.error || `The server answered with ${response.status}.`);
  return content;
}

export const isVoid = (error) => error.name === "AbortError";

export const fetchRuns = (known) => ask("runs", `runs?${new URLSearchParams({ known })}`);

export const fetchRows = () => ask("rows", `rows?${query()}`);

/** The error rates of the rows over all steps, which take longer to gather than the rows themselves. */
export const fetchCurves = () => ask("curves", `curves?${query()}`);

export const fetchConfusions = () => ask("confusions", `confusions?${query()}`);

export function fetchSample(run, id) {
  return ask("sample", `sample?${new URLSearchParams({ run, set: state.set, step: state.step, id })}`);
}

export function audioAddress(run, id) {
  return `audio?${new URLSearchParams({ run, set: state.set, id })}`;
}

export const csvAddress = () => `transcripts.csv?${query()}`;

function query() {
  const { set, step, sort, order, filter, search, offset, limit } = state;
  const asked = new URLSearchParams({ set, step, sort, order, filter, search, offset, limit });
  chosenRuns().forEach((run) => asked.append("run", run));
  modes().forEach((mode) => asked.append("mode", mode));
  return asked;
}
