"""The README.md of an exported folder: what it holds, and the lines that use it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sonosco_like.export.formats import ExportSettings
from sonosco_like.inference import TrainedRecogniser


def onnx_readme(
    metadata: Mapping[str, str], settings: ExportSettings, is_ctc: bool, recogniser: TrainedRecogniser
) -> str:
    """For the format `onnx`."""
    return "\n".join(
        [
            f"# A speech recogniser in ONNX, written by sonosco_like {metadata['sonosco_like']}",
            "",
            "It needs Python with `numpy` and `onnxruntime` (`pip install numpy onnxruntime`), nothing else:",
            "",
            "```",
            f"python transcribe.py {'call.wav' if settings.takes == 'waveform' else 'features.npy'}",
            *(["python transcribe.py --int8 call.wav"] if settings.int8 else []),
            "```",
            "",
            *_files(settings, is_ctc),
            "",
            *_inputs(metadata, settings, recogniser),
            "",
            *_search(is_ctc),
            "",
            *_origin(metadata),
        ]
    )


def sherpa_readme(metadata: Mapping[str, str], settings: ExportSettings, notes: Sequence[str]) -> str:
    """For the format `sherpa`."""
    size, rate = metadata["features_per_frame"], metadata["sample_rate"]
    return "\n".join(
        [
            f"# A speech recogniser for sherpa-onnx, written by sonosco_like {metadata['sonosco_like']}",
            "",
            "In Python (`pip install sherpa-onnx`), with `samples` in [-1, 1] of one channel:",
            "",
            "```python",
            "import sherpa_onnx",
            "",
            "recognizer = sherpa_onnx.OfflineRecognizer.from_zipformer_ctc(",
            f'    model="model.onnx", tokens="tokens.txt", feature_dim={size}, sample_rate={rate}',
            ")",
            "stream = recognizer.create_stream()",
            f"stream.accept_waveform({rate}, samples)",
            "recognizer.decode_stream(stream)",
            "print(stream.result.text)",
            "```",
            "",
            "On the command line, with the programs of sherpa-onnx:",
            "",
            "```",
            f"sherpa-onnx-offline --zipformer-ctc-model=model.onnx --tokens=tokens.txt --feat-dim={size} "
            f"--sample-rate={rate} call.wav",
            "```",
            "",
            "- `model.onnx`: normalization, encoder and CTC output",
            *(["- `model.int8.onnx`: the same with weights of 8 bits"] if settings.int8 else []),
            "- `tokens.txt`: the symbol of each label",
            "- `verification.json`, if the export was verified: the texts it was compared on, and the error rates",
            "",
            *notes,
            *([""] if notes else []),
            *_origin(metadata),
        ]
    )


def _files(settings: ExportSettings, is_ctc: bool) -> list[str]:
    names = ["model"] if is_ctc else ["encoder", "decoder"]
    rows = [f"- `{name}.onnx`" for name in names]
    if settings.int8:
        rows += [f"- `{name}.int8.onnx`: the same with weights of 8 bits" for name in names]
    return [
        *rows,
        "- `transcribe.py`: features in, text out; also a class `Recogniser` for your own program",
        "- `verification.json`, if the export was verified: the texts it was compared on, and the error rates",
    ]


def _inputs(metadata: Mapping[str, str], settings: ExportSettings, recogniser: TrainedRecogniser) -> list[str]:
    if settings.takes == "waveform":
        what = (
            f"`waveform` (batch, time): float32 samples in [-1, 1], {metadata['sample_rate']} per second, one channel"
        )
    else:
        what = (
            f"`features` (batch, time, {recogniser.features.size}): float32, before normalization, "
            f"as described in the metadata `features`"
        )
    return [
        f"Inputs: {what}; `input_lengths` (batch): int64. Shorter inputs of a batch are padded with zeros. "
        f"The time axis must have at least {metadata['least_samples']} entries."
    ]


def _search(is_ctc: bool) -> list[str]:
    if is_ctc:
        return [
            "Outputs: `log_probs` (batch, frames, labels) and `lengths` (batch). Take the best label of each frame, "
            "merge runs of one label, and drop label 0, the blank. The metadata `texts` has the text of each label."
        ]
    return [
        "`encoder.onnx` gives `lengths`, `log_probs` if there is a CTC output, and the states at the start. "
        "`decoder.onnx` takes the last `labels` (label 1 at first) and the states of each hypothesis, and gives "
        "`log_probs` of the next label, `attention`, and the states that it changed, with `new_` in front of their "
        "names. Label 2 ends a text. `transcribe.py` has the whole search; the metadata `search` has its settings."
    ]


def _origin(metadata: Mapping[str, str]) -> list[str]:
    known = {name: metadata[name] for name in ("run", "step", "weights", "weights_sha256") if name in metadata}
    return ["From: " + ", ".join(f"{name} {value}" for name, value in known.items()) + ".", ""]
