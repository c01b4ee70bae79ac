// The microphone: a recording, its level, and its samples for whoever wants them while it goes on.

// as it was said: recognisers are trained on recordings without a browser's improvements
const AUDIO = { channelCount: 1, echoCancellation: false, noiseSuppression: false, autoGainControl: false };
const FORMS = ["audio/webm;codecs=opus", "audio/mp4", "audio/ogg;codecs=opus"];

/** Start to record. `onLevel` gets 0 to 1, `onSamples` gets samples; `stop` gives the recording, `cancel` nothing. */
export async function record(context, { onLevel, onSamples }) {
  if (!navigator.mediaDevices) throw new Error("This browser gives the microphone only to pages of this machine, or over HTTPS.");
  let stream;
  try {
    stream = await navigator.mediaDevices.getUserMedia({ audio: AUDIO });
  } catch (error) {
    throw new Error(error.name === "NotFoundError" ? "There is no microphone." : "The browser was not allowed to use the microphone.");
  }
  await context.resume();
  await context.audioWorklet.addModule("static/worklet.js");
  const source = context.createMediaStreamSource(stream);
  const samples = new AudioWorkletNode(context, "samples", { numberOfOutputs: 0 });
  samples.port.onmessage = ({ data }) => {
    onLevel(data.reduce((most, sample) => Math.max(most, Math.abs(sample)), 0));
    onSamples(data);
  };
  source.connect(samples);
  const form = FORMS.find((each) => MediaRecorder.isTypeSupported(each));
  const recorder = new MediaRecorder(stream, form ? { mimeType: form } : {});
  const parts = [];
  recorder.addEventListener("dataavailable", ({ data }) => parts.push(data));
  const ended = new Promise((resolve) => recorder.addEventListener("stop", resolve, { once: true }));
  recorder.start();

  async function end() {
    if (recorder.state !== "inactive") recorder.stop();
    await ended;
    stream.getTracks().forEach((track) => track.stop());
    source.disconnect();
    samples.port.onmessage = null;
    onLevel(0);
  }

  return {
    async stop() {
      await end();
      return new Blob(parts, { type: recorder.mimeType });
    },
    cancel: end,
  };
}
