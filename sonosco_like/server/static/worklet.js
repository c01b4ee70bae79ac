// Passes samples of the microphone on to the page, about 20 times a second.

class Samples extends AudioWorkletProcessor {
  constructor() {
    super();
    this.kept = new Float32Array(2048);
    this.filled = 0;
  }

  process(inputs) {
    const channel = inputs[0][0];
    if (!channel) return true;
    for (const sample of channel) {
      this.kept[this.filled++] = sample;
      if (this.filled === this.kept.length) {
        this.port.postMessage(this.kept.slice());
        this.filled = 0;
      }
    }
    return true;
  }
}

registerProcessor("samples", Samples);
