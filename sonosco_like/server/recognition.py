"""The models of a server, in a process of their own."""

from __future__ import annotations

import ctypes
import itertools
import os
from collections.abc import Sequence
from importlib import import_module
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
import torch

from sonosco_like.decoding import Decoder
from sonosco_like.errors import UsageError
from sonosco_like.inference import DecoderSettings, Transcript
from sonosco_like.inference.audio_stream import Samples
from sonosco_like.inference.exporters import open_transcriber
from sonosco_like.inference.transcriber import WaveformTranscriber
from sonosco_like.inference.transcript import render
from sonosco_like.server.children import Message, answer_questions

_KEPT_PRIMITIVES = "64"  # oneDNN keeps code for 1024 shapes by default, and every batch here has shapes of its own
_BATCHES_BETWEEN_TRIMS = 64


class Model:
    """The transcriber of a run, a checkpoint or an export, for requests with and without n best hypotheses."""

    def __init__(self, transcriber: WaveformTranscriber) -> None:
        self._transcriber = transcriber
        self._decoders: dict[int, Decoder] = {0: transcriber.decoder}
        self.about = {
            "sample_rate": transcriber.sample_rate,
            "decoder": type(transcriber.decoder).__name__,
            **transcriber.about,
        }

    def transcripts(self, waveforms: Sequence[Samples], n_best: int) -> list[Transcript]:
        """The transcript of each waveform; with `n_best`, each segment has so many hypotheses if there are as many."""
        if n_best not in self._decoders:
            settings = DecoderSettings(n_best=n_best)
            self._decoders[n_best] = settings.apply(self._decoders[0], self._transcriber.model)
        self._transcriber.decoder = self._decoders[n_best]
        return self._transcriber.waveforms(waveforms)


def recogniser_process(
    connection: Connection,
    paths: dict[str, Path],
    threads: int | None,
    modules: Sequence[str],
    device: str | None,
    longest: float | None,
    options: dict[str, Any],
) -> None:
    """Load models, and answer questions (`model`, `n_best`, `forms`) with the transcripts of the waveforms."""
    os.environ.setdefault("ONEDNN_PRIMITIVE_CACHE_CAPACITY", _KEPT_PRIMITIVES)
    if threads is not None:
        torch.set_num_threads(threads)
    for module in modules:
        import_module(module)
    models: dict[str, Model] = {}
    for name, path in paths.items():
        try:
            models[name] = Model(open_transcriber(path, device, DecoderSettings(**options), longest))
        except UsageError as error:
            raise UsageError(f"{name}: {error}") from None

    numbers = itertools.count(1)

    def answer(question: Message) -> Message:
        if next(numbers) % _BATCHES_BETWEEN_TRIMS == 0:
            _trim_memory()
        model, header = models[question.header["model"]], question.header
        waveforms = [np.frombuffer(part, dtype=np.float32) for part in question.parts]
        return Message({"transcripts": _transcribe(model, waveforms, header["n_best"], header["forms"])})

    about = {name: model.about for name, model in models.items()}
    answer_questions(connection, answer, {"models": about})


def _trim_memory() -> None:
    """Give back to the system what lies unused between tensors of many sizes, where the C library can (glibc)."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


def _transcribe(model: Model, waveforms: list[Samples], n_best: int, forms: list[str | None]) -> list[dict[str, Any]]:
    """The transcripts as plain data; if a batch fails, each waveform is tried alone, so that one harms no other."""
    try:
        found = model.transcripts(waveforms, n_best)
    except Exception as error:  # whatever a model raises must reach the client as an answer, and not end this process
        if len(waveforms) > 1:
            pairs = zip(waveforms, forms, strict=True)
            return [_transcribe(model, [waveform], n_best, [form])[0] for waveform, form in pairs]
        return [{"error": f"The model failed: {type(error).__name__}: {error}"}]
    return [_as_data(transcript, n_best, form) for transcript, form in zip(found, forms, strict=True)]


def _as_data(transcript: Transcript, n_best: int, form: str | None) -> dict[str, Any]:
    content = transcript.as_dict(n_best=n_best > 0)
    del content["audio"]  # always the same word: uploads have no names here
    return {**content, "subtitles": render(transcript, form)} if form else content
