"""The README.md of an exported folder: what it holds, and the lines that use it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sonosco_like.export.formats import ExportSettings

_NEEDED = {"onnxruntime": "numpy onnxruntime", "torch": "numpy torch"}


def graphs_readme(metadata: Mapping[str, str], settings: ExportSettings, names: Sequence[str], engine: str) -> str:
    """For the formats whose graphs `transcribe.py` runs."""
    return "\n".join(
        [
            f"# A speech recogniser for {engine}, written by sonosco_like {metadata['sonosco_like']}",
            "",
            f"It needs Python with `pip install {_NEEDED[engine]}`, and nothing else:",
            "",
            "```",
            f"python transcribe.py {'call.wav' if settings.takes == 'waveform' else 'features.npy'}",
            *(["python transcribe.py --int8 call.wav"] if settings.int8 else []),
            "```",
            "",
            *(f"- `{name}`" for name in names),
            *(f"- `{name.replace('.', '.int8.')}`: with weights of 8 bits" for name in names if settings.int8),
            "- `transcribe.py`: features in, text out; also a class `Recogniser` for your own program",
            "- `verification.json`, if the export was verified: the texts it was compared on, and the error rates",
            "",
            *_inputs(metadata, settings),
            "",
            *_search(names),
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


def _inputs(metadata: Mapping[str, str], settings: ExportSettings) -> list[str]:
    if settings.takes == "waveform":
        what = (
            f"`waveform` (batch, time): float32 samples in [-1, 1], {metadata['sample_rate']} per second, one channel"
        )
    else:
        what = (
            f"`features` (batch, time, {metadata['features_per_frame']}): float32, before normalization, "
            f"as described in the metadata `features`"
        )
    return [
        f"Inputs: {what}; `input_lengths` (batch): int64. Shorter inputs of a batch are padded with zeros. "
        f"The time axis must have at least {metadata['least_samples']} entries."
    ]


def _search(names: Sequence[str]) -> list[str]:
    if len(names) == 1:
        return [
            "Outputs: `log_probs` (batch, frames, labels) and `lengths` (batch). Take the best label of each frame, "
            "merge runs of one label, and drop label 0, the blank. The metadata `texts` has the text of each label."
        ]
    return [
        f"`{names[0]}` gives `lengths`, `log_probs` if there is a CTC output, and the states at the start. "
        f"`{names[1]}` takes the last `labels` (label 1 at first) and the states of each hypothesis, and gives "
        "`log_probs` of the next label, `attention`, and the states that it changed, with `new_` in front of their "
        "names. Label 2 ends a text. `transcribe.py` has the whole search; the metadata `search` has its settings."
    ]


def _origin(metadata: Mapping[str, str]) -> list[str]:
    known = {name: metadata[name] for name in ("run", "step", "weights", "weights_sha256") if name in metadata}
    return ["From: " + ", ".join(f"{name} {value}" for name, value in known.items()) + ".", ""]
