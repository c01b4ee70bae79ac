"""Writes logged values to TensorBoard, in event files that can be cut off after any record.

tensorboardX makes the records. Its writers are not used, because they write from another thread: the size of the file
would not be known when a checkpoint is taken.
"""

from __future__ import annotations

import os
import re
import struct
import time
from pathlib import Path
from typing import Any

import numpy as np
from tensorboardX import summary
from tensorboardX.proto.event_pb2 import Event as Record
from tensorboardX.proto.event_pb2 import SessionLog
from tensorboardX.proto.summary_pb2 import Summary, SummaryMetadata
from tensorboardX.proto.tensor_pb2 import TensorProto
from tensorboardX.proto.tensor_shape_pb2 import TensorShapeProto
from tensorboardX.record_writer import masked_crc32c
from tensorboardX.utils import figure_to_image
from torch import Tensor

from sonosco_like.callbacks.destination import (
    Audio,
    DashboardData,
    Destination,
    Image,
    Markdown,
    Plain,
    RunFile,
    as_float,
    config_text,
    escape_surrogates,
    hyperparameters,
)
from sonosco_like.callbacks.measures import families_of, tag_of
from sonosco_like.events import Moment, TrainerContext
from sonosco_like.runs.run_folder import TENSORBOARD, following_name
from sonosco_like.serialization import serializable, state

_VERSION = "brain.Event:2"
_BINS = 64
_HEAD_OF_LENGTH, _FOOT = 12, 4  # bytes: length and its checksum before a record, the checksum of the record after it
_HEAD, _WALL_TIME = _HEAD_OF_LENGTH + 9, 0x09  # a record begins with its time: a tag byte and a double
_NOT_OF_IMAGES = re.compile(r"[^-/\w.]")  # tensorboardX would replace them too, with a warning each time
_IS_BLOB_SEQUENCE = b"\x20\x03"  # `data_class: DATA_CLASS_BLOB_SEQUENCE`, a field that tensorboardX does not know yet


class EventFile:
    """A new event file without delayed writing, so that its size shows which records are in it.

    No record has a time before `not_before`: TensorBoard and the Transcripts page use the times to find the later one
    of two records. If the clock of the machine was set back, times continue from the last one.
    """

    def __init__(self, path: Path, not_before: float = 0.0) -> None:
        self._file = path.open("xb")
        self._clock = _Clock(not_before)
        self._write(Record(wall_time=self._clock.now(), file_version=_VERSION))

    @property
    def size(self) -> int:
        """Bytes written so far."""
        return self._file.tell()

    def forget_from(self, step: int) -> None:
        """Write a record that makes TensorBoard discard this step and all later ones, if it has read them."""
        start = SessionLog(status=SessionLog.START)
        self._write(Record(wall_time=self._clock.now(), step=step, session_log=start))

    def add(self, content: Any, step: int) -> None:
        """Write a summary of a step."""
        self._write(Record(wall_time=self._clock.now(), step=step, summary=content))

    def flush(self, to_disk: bool = False) -> None:
        """Flush to the operating system, or to the disk."""
        self._file.flush()
        if to_disk:
            os.fsync(self._file.fileno())

    def close(self) -> None:
        """Finish the file."""
        self._file.close()

    def _write(self, record: Any) -> None:
        content = record.SerializeToString()
        length = struct.pack("<Q", len(content))
        self._file.write(length + struct.pack("<I", masked_crc32c(length)))
        self._file.write(content + struct.pack("<I", masked_crc32c(content)))


class _Clock:
    """The time of day, which never goes back even if the clock of the machine does."""

    def __init__(self, not_before: float) -> None:
        self._last = not_before
        self._ahead = 0.0

    def now(self) -> float:
        """Seconds since 1970, at least those of the last call."""
        self._ahead = max(self._ahead, self._last - time.time())
        self._last = time.time() + self._ahead
        return self._last


def last_record_time(path: Path) -> float:
    """The time of the last complete record of a file, or 0; the contents of records are skipped."""
    last, size = 0.0, path.stat().st_size
    with path.open("rb") as file:
        while len(head := file.read(_HEAD)) == _HEAD:
            length, tag = struct.unpack_from("<Q4xB", head)
            end = file.tell() + length + _FOOT - (_HEAD - _HEAD_OF_LENGTH)
            if tag != _WALL_TIME or end > size:
                break
            (last,) = struct.unpack_from("<d", head, _HEAD - 8)
            file.seek(end)
    return last


def make_summary(tag: str, value: Any) -> Any | None:
    """The TensorBoard summary of a logged value; None for a value that TensorBoard cannot show."""
    if isinstance(value, (str, Markdown)):
        return summary.text(tag, escape_surrogates(value.text if isinstance(value, Markdown) else value))
    if isinstance(value, DashboardData):
        return _blobs(tag, value)
    if isinstance(value, Image):
        return summary.image(_NOT_OF_IMAGES.sub("_", tag), value.pixels_HWC, dataformats="HWC")
    if isinstance(value, Audio):
        return summary.audio(tag, value.samples_N.clamp(-1, 1), value.sample_rate)
    if hasattr(value, "savefig"):
        return summary.image(_NOT_OF_IMAGES.sub("_", tag), figure_to_image(value), dataformats="CHW")
    if isinstance(value, (bool, int, float)) or getattr(value, "ndim", None) == 0:
        return summary.scalar(tag, as_float(value))
    if isinstance(value, (Tensor, np.ndarray)):
        return _histogram(tag, value)
    return None


def _blobs(tag: str, value: DashboardData) -> Any:
    about = SummaryMetadata.PluginData(plugin_name=value.plugin, content=value.about)
    metadata = SummaryMetadata.FromString(SummaryMetadata(plugin_data=about).SerializeToString() + _IS_BLOB_SEQUENCE)
    shape = TensorShapeProto(dim=[TensorShapeProto.Dim(size=len(value.parts))])
    tensor = TensorProto(dtype="DT_STRING", string_val=value.parts, tensor_shape=shape)
    return Summary(value=[Summary.Value(tag=tag, metadata=metadata, tensor=tensor)])


def _histogram(tag: str, value: Tensor | np.ndarray[Any, Any]) -> Any | None:
    array = value.detach().cpu().float().numpy() if isinstance(value, Tensor) else value
    finite = array[np.isfinite(array)]
    return summary.histogram(tag, finite, _BINS) if finite.size else None


_SUFFIX = ".sonosco"  # marks the files that this callback may cut and delete


@serializable
class TensorBoardCallback(Destination):
    """Writes everything that is logged to TensorBoard, at the global step.

    Measures are grouped as `loss/train`, `loss/val`, `wer/val`; other values keep their names. Numbers become curves,
    tensors become histograms; texts, figures, `Image` and `Audio` are shown too. The config is shown as text and as
    hyperparameters. Other callbacks, such as LogMeasures and LRMonitor, log the values.

    Every start of a run writes a new file. The state holds the size of each file: a resumed run cuts off the records
    that were written after the checkpoint, so that no point is missing or there twice.
    """

    path: str = TENSORBOARD
    folder: Path = Path()
    sizes: dict[str, int] = state({})

    def __post_init__(self) -> None:
        self.run_file = RunFile(self.path, self.folder)
        self._file: EventFile | None = None
        self._name = ""

    def on_attach(self, moment: Moment) -> None:
        """Drop the records that were written after the checkpoint, and begin a new file."""
        if self._file is not None:
            return
        context = moment.context
        folder = self.run_file.resolve(context)
        folder.mkdir(parents=True, exist_ok=True)
        self._name = _following_name(folder)
        written = max(map(last_record_time, _own_files(folder)[-1:]), default=0.0)
        self._drop_lost_records(folder)
        is_new = not self.sizes
        self._file = EventFile(folder / self._name, written)
        self._file.forget_from(context.global_step + 1 if context.global_step else 0)
        if is_new:
            self._describe(context)
        self._note_size()

    def on_log(self, moment: Moment) -> None:
        if self._file is None:
            return
        families = families_of(moment.context)
        for name, value in moment.args["values"].items():
            content = make_summary(tag_of(name, families), value)
            if content is not None:
                self._file.add(content, moment.args["step"])
        self._note_size()

    def on_checkpoint_start(self, moment: Moment) -> None:
        """Flush to disk: a checkpoint that survives a power failure must not count lost records."""
        if self._file is not None:
            self._file.flush(to_disk=True)

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def _note_size(self) -> None:
        assert self._file is not None
        self._file.flush()
        self.sizes = {**self.sizes, self._name: self._file.size}

    def _drop_lost_records(self, folder: Path) -> None:
        for file in _own_files(folder):
            if file.name not in self.sizes:
                file.unlink()
            elif file.stat().st_size > self.sizes[file.name]:
                os.truncate(file, self.sizes[file.name])

    def _describe(self, context: TrainerContext) -> None:
        text = config_text(context)
        if text is None or self._file is None:
            return
        as_code = "\n".join(f"    {line}" for line in text.splitlines())
        self._file.add(summary.text("config", as_code), 0)
        sets = ["", *(f"val_{name}_" if name else "val_" for name in context.validation_sets)]
        families = families_of(context)
        measured = [tag_of(kind + family, families) for kind in sets for family in families]
        for content in summary.hparams(_hyperparameter_values(hyperparameters(context)), dict.fromkeys(measured))[:2]:
            self._file.add(content, 0)


def _hyperparameter_values(settings: dict[str, Plain]) -> dict[str, Plain]:
    """Settings that TensorBoard accepts: integers of more than 64 bits become texts."""
    too_large = (name for name, value in settings.items() if isinstance(value, int) and abs(value) >= 2**63)
    return settings | {name: str(settings[name]) for name in too_large}


def _own_files(folder: Path) -> list[Path]:
    return sorted(folder.glob(f"*tfevents*{_SUFFIX}"))


def _following_name(folder: Path) -> str:
    """A name that sorts after all files, also lost ones: TensorBoard reads files in the order of their names."""
    taken = (file.name.removesuffix(_SUFFIX) for file in folder.iterdir() if "tfevents" in file.name)
    return following_name(f"events.out.tfevents.{int(time.time()):010d}", taken) + _SUFFIX
