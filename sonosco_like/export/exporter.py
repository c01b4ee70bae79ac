"""The export of a recogniser to a folder, and its verification."""

from __future__ import annotations

import copy
import json
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from sonosco_like.errors import UsageError, did_you_mean, list_some
from sonosco_like.export.description import exportable_decoder
from sonosco_like.export.formats import ExportFormat, ExportSettings
from sonosco_like.export.onnx_format import OnnxFormat, require_packages
from sonosco_like.export.sherpa_format import SherpaFormat
from sonosco_like.export.torch_format import TorchFormat
from sonosco_like.export.verification import Comparison, compare
from sonosco_like.inference import DecoderSettings, TrainedRecogniser, load_recogniser
from sonosco_like.models.adapters import merge_adapters
from sonosco_like.progress import Progress, no_progress
from sonosco_like.runs.checkpoints import find_checkpoint
from sonosco_like.serialization import Saved, absolute_path, new_folder, write_file

FormatName = Literal["onnx", "sherpa", "torch-export"]
FORMATS: dict[FormatName, type[ExportFormat]] = {
    "onnx": OnnxFormat,
    "sherpa": SherpaFormat,
    "torch-export": TorchFormat,
}
VERIFICATION = "verification.json"
_OWN_FILE = re.compile(
    r"(model|encoder|decoder)(\.int8)?\.(onnx|pt2)|transcribe\.py|tokens\.txt|README\.md|verification\.json"
)
_VALIDATION = "val_data_loader.dataset.manifest"


@dataclass(frozen=True)
class Exported:
    """The result of an export: the folder, the comparisons that verify it, and notes about its limits."""

    folder: Path
    comparisons: list[Comparison] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    unreadable: int = 0

    @property
    def agrees(self) -> bool:
        """Whether all graphs that must give the recogniser's texts do so."""
        return all(each.agrees for each in self.comparisons)


def export(
    run: str | Path | TrainedRecogniser,
    output: str | Path,
    format: FormatName = "onnx",
    *,
    verify: str | Path | bool = True,
    int8: bool = False,
    opset: int = 17,
    input: Literal["waveform", "features"] = "waveform",
    decode: Literal["ctc", "attention"] | None = None,
    overwrite: bool = False,
    progress: Progress = no_progress,
) -> Exported:
    """Write a trained recogniser to the folder `output`, for use without this package, and verify its texts.

        exported = sonosco_like.export("runs/digits", "digits-onnx", "onnx", verify="test.jsonl")
        assert exported.agrees

    `run` is a run folder, a checkpoint, or a recogniser. `verify` is a manifest; True stands for the validation
    manifest of the run, if it is there, and False for none. `decode` chooses between the outputs of a model that has
    both CTC and attention. The folder is there only when it is complete.
    """
    kind = _format_named(format)
    require_packages(*kind.packages)
    folder = absolute_path(output)
    _check_place(folder, overwrite)
    manifest = _manifest_to_verify(run, verify)
    recogniser = _recogniser_of(run)
    written = _prepare(recogniser, kind, ExportSettings(input, int8, opset), decode)
    notes = list(written.notes)
    if verify is True and manifest is None:
        notes.append(
            "The export was not verified: the validation manifest of the run is not here. Give one: --verify FILE."
        )
    comparisons: list[Comparison] = []
    unreadable = 0
    with new_folder(folder) as aside:
        written.write(aside)
        if manifest is not None:
            comparisons, unreadable = compare(written, aside, manifest, progress)
            _write_verification(aside, manifest, comparisons, unreadable)
    return Exported(folder, comparisons, notes, unreadable)


@dataclass(frozen=True)
class FormatExporter:
    """One format for `ExportForInference`: an `Exporter` of the room `inference`."""

    name: FormatName

    def check(self, recogniser: TrainedRecogniser) -> None:
        """Refuse a recogniser that this format cannot represent, before it is trained."""
        kind = FORMATS[self.name]
        require_packages(*kind.packages)
        _prepare(copy.copy(recogniser), kind, ExportSettings(), None)

    def write(self, recogniser: TrainedRecogniser, folder: Path, manifest: Path | None) -> list[str]:
        """Write and verify the folder; returns a line for each difference."""
        exported = export(recogniser, folder, self.name, verify=manifest or False, overwrite=True)
        return [line for each in exported.comparisons if not each.agrees for line in each.lines()]


def _prepare(
    recogniser: TrainedRecogniser, kind: type[ExportFormat], settings: ExportSettings, decode: str | None
) -> ExportFormat:
    """The format, ready to write the recogniser, which gets a decoder that can be exported."""
    kind.check(recogniser)
    chosen = DecoderSettings(kind=kind.output or decode).apply(recogniser.decoder, recogniser.model)
    recogniser.decoder, note = exportable_decoder(chosen)
    prepared = kind(recogniser, settings)
    prepared.notes[:0] = [note] if note else []
    return prepared


def _format_named(name: FormatName) -> type[ExportFormat]:
    if name not in FORMATS:
        raise UsageError(f"`format` must be one of {', '.join(FORMATS)}, got {name!r}{did_you_mean(name, FORMATS)}")
    return FORMATS[name]


def _check_place(folder: Path, overwrite: bool) -> None:
    """Refuse a folder that exists, also with `overwrite` if it holds anything but an export."""
    if not folder.exists():
        return
    if not overwrite:
        raise UsageError(f"{folder} exists already. Give another folder, or replace it: --force (overwrite=True).")
    others = sorted(path.name for path in folder.iterdir() if not _OWN_FILE.fullmatch(path.name))
    if others:
        raise UsageError(
            f"{folder} is not replaced, since it holds more than an export: {list_some(others, 3)}. Give another."
        )


def _recogniser_of(run: str | Path | TrainedRecogniser) -> TrainedRecogniser:
    """The recogniser on the CPU; a given one is copied, since its model may still be trained."""
    if not isinstance(run, TrainedRecogniser):
        return load_recogniser(run, "cpu")
    recogniser = copy.deepcopy(run)
    merge_adapters(recogniser.model)
    recogniser.model.to("cpu").eval()
    return recogniser


def _manifest_to_verify(run: str | Path | TrainedRecogniser, verify: str | Path | bool) -> Path | None:
    """The manifest that is given, or the validation manifest of the run if it is there."""
    if not isinstance(verify, bool):
        if not Path(verify).is_file():
            raise UsageError(f"There is no manifest {verify} to verify the export with.")
        return Path(verify)
    if not verify or isinstance(run, TrainedRecogniser):
        return None
    named = Saved(find_checkpoint(run), tensors=False).get(_VALIDATION)
    return Path(named) if isinstance(named, str) and Path(named).is_file() else None


def _write_verification(folder: Path, manifest: Path, comparisons: list[Comparison], unreadable: int) -> None:
    content = {
        "manifest": manifest.name,
        "agrees": all(each.agrees for each in comparisons),
        "unreadable": unreadable,
        "comparisons": [each.as_dict() for each in comparisons],
    }
    text = json.dumps(content, ensure_ascii=False, indent=1)
    write_file(folder / VERIFICATION, (text + "\n").encode())
