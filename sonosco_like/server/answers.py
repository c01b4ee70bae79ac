"""The forms of answers: our own, and those of OpenAI's API."""

from __future__ import annotations

import math
import zlib
from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field

LONGEST_TEXT = 5000  # characters
Form = Literal["json", "text", "srt", "vtt", "verbose_json"]


class Problem(BaseModel):
    """What went wrong, in OpenAI's form."""

    message: str
    type: str
    param: str | None = None
    code: str | None = None


class ErrorAnswer(BaseModel):
    """The answer to a request that could not be fulfilled."""

    error: Problem


class Word(BaseModel):
    """A word with its time in seconds."""

    word: str
    start: float
    end: float
    confidence: float | None = None


class Hypothesis(BaseModel):
    """One of the n best hypotheses of a segment."""

    text: str
    score: float | None = None


class Segment(BaseModel):
    """A part of the recording between two pauses."""

    start: float
    end: float
    text: str
    confidence: float | None = None
    hypotheses: list[Hypothesis] | None = None


class Result(BaseModel):
    """The result of one model."""

    model: str
    text: str
    duration: float
    confidence: float | None = None
    words: list[Word]
    segments: list[Segment]


class Results(BaseModel):
    """The results of the models."""

    results: list[Result]


class ModelEntry(BaseModel):
    """A model of this server; the first fields are those of OpenAI's API."""

    id: str
    object: Literal["model"] = "model"
    created: int
    owned_by: str = "sonosco_like"
    kind: Literal["run", "onnx", "sherpa", "torch-export"]
    architecture: str
    parameters: int
    sample_rate: int
    decoder: str
    weights: str


class Models(BaseModel):
    """The models of this server; the first one is the default."""

    object: Literal["list"] = "list"
    data: list[ModelEntry]


class Health(BaseModel):
    """Whether requests can be answered."""

    status: Literal["ok", "starting"]
    recognisers: int
    models: list[str]
    max_seconds: float
    collecting: bool


class Pair(BaseModel):
    """A hypothesis against a reference; each place of an alignment is [mark, reference, hypothesis]."""

    words: list[list[str | None]]
    characters: list[list[str | None]]
    wer: float
    cer: float


class Comparison(BaseModel):
    """Each hypothesis against the reference."""

    pairs: list[Pair]


class Comparable(BaseModel):
    """A reference and hypotheses to be aligned with it."""

    reference: str = Field(max_length=LONGEST_TEXT)
    hypotheses: list[Annotated[str, Field(max_length=LONGEST_TEXT)]] = Field(max_length=16)


class Saved(BaseModel):
    """A correction that is on the disk, and how many rows the manifest has."""

    id: str
    saved: Literal["added", "changed", "unchanged"]
    rows: int


def openai_answer(result: dict[str, Any], form: Form, language: str, with_words: bool) -> dict[str, Any] | str:
    """A transcript in the form that a client of OpenAI's API asked for; a text is sent as it is."""
    if form == "text":
        return f"{result['text']}\n"
    if form in ("srt", "vtt"):
        subtitles: str = result["subtitles"]
        return subtitles
    usage = {"type": "duration", "seconds": math.ceil(result["duration"])}
    if form == "json":
        return {"text": result["text"], "usage": usage}
    answer = {
        "task": "transcribe", "language": language, "duration": result["duration"], "text": result["text"],
        "segments": [_openai_segment(number, each) for number, each in enumerate(result["segments"])],
        "usage": usage,
    }  # fmt: skip
    if with_words:
        answer["words"] = [{name: word[name] for name in ("word", "start", "end")} for word in result["words"]]
    return answer


def _openai_segment(number: int, segment: dict[str, Any]) -> dict[str, Any]:
    """A segment as Whisper's have it. `tokens` stays empty; `no_speech_prob` is 1 for a segment without words."""
    text = segment["text"].encode()
    return {
        "id": number, "seek": 0, "start": segment["start"], "end": segment["end"], "text": segment["text"],
        "tokens": [], "temperature": 0.0,
        "avg_logprob": math.log(max(segment["confidence"] or 0.0, 1e-10)) if text else 0.0,
        "compression_ratio": len(text) / len(zlib.compress(text)) if text else 0.0,
        "no_speech_prob": 0.0 if text else 1.0,
    }  # fmt: skip
