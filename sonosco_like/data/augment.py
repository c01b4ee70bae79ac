"""Augmentations that need no other recording: of samples (speed, tempo, pitch, gain, shift, noise) and of features.

An augmentation is a pure function of its input and a generator. Each (seed, epoch, utterance) has its own generator,
and all augmentations of the utterance draw from it one after the other. So neither the number of workers nor the place
where a run was stopped changes anything. Augmentations compute with NumPy on one thread for the same reason.

Shape suffixes: N samples, P pieces, W samples of a piece, T frames, F features."""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from dataclasses import field
from importlib import import_module
from inspect import signature
from typing import Any, Literal

import numpy as np
import soxr
import torch
from numpy.typing import NDArray
from torch import Tensor

from sonosco_like.data.audio import Floats
from sonosco_like.errors import MissingPackageError, UsageError, as_sentence, did_you_mean
from sonosco_like.serialization import serializable


def utterance_random(seed: int, epoch: int, utterance_id: str) -> np.random.Generator:
    """The generator of one utterance in one epoch; the same in every process and on every machine."""
    name = f"{seed}/{epoch}/{utterance_id}".encode("utf-8", "surrogatepass")
    digest = hashlib.blake2b(name, digest_size=16).digest()
    return np.random.Generator(np.random.PCG64(int.from_bytes(digest, "little")))


@serializable
class Augmentation(ABC):
    """A change to an utterance with a probability; the decision is always the first number drawn."""

    probability: float = 1.0

    def __post_init__(self) -> None:
        if not 0 <= self.probability <= 1:
            raise UsageError(f"`probability` must be from 0 to 1, got {self.probability}.")

    def _happens(self, random: np.random.Generator) -> bool:
        return random.random() < self.probability


@serializable
class WaveformAugmentation(Augmentation):
    """A change to the samples of an utterance, which may change their number."""

    def __call__(self, samples_N: Tensor, sample_rate: int, random: np.random.Generator) -> Tensor:
        """The changed samples in a new tensor, or the input itself if nothing is changed."""
        if not self._happens(random) or not samples_N.numel():
            return samples_N
        return torch.from_numpy(self.apply(_array(samples_N), sample_rate, random))

    @abstractmethod
    def apply(self, samples_N: Floats, sample_rate: int, random: np.random.Generator) -> Floats:
        """The changed copy of at least one float32 sample; the input stays as it is."""


@serializable
class FeatureAugmentation(Augmentation):
    """A change to the features of an utterance, which keeps their shape."""

    def __call__(self, features_TF: Tensor, random: np.random.Generator) -> Tensor:
        """The changed features in a new tensor, or the input itself if nothing is changed."""
        if not self._happens(random) or not features_TF.numel():
            return features_TF
        return torch.from_numpy(self.apply(_array(features_TF), random))

    @abstractmethod
    def apply(self, features_TF: Floats, random: np.random.Generator) -> Floats:
        """The changed copy of float32 features of at least one frame; the input stays as it is."""


def _array(tensor: Tensor) -> Floats:
    return tensor.detach().to("cpu", torch.float32).numpy()


def check_range(name: str, limits: tuple[float, float], above: float = -np.inf) -> None:
    """Refuse a range whose ends are swapped, or not above the limit."""
    low, high = limits
    if not above < low <= high < np.inf:
        beyond = "" if above == -np.inf else f" greater than {above:g}"
        raise UsageError(f"`{name}` must be two numbers{beyond}, the smaller one first; got {low} and {high}.")


@serializable
class SpecAugment(FeatureAugmentation):
    """Masks of frequency bands and times, and optional time warping (Park et al. 2019, 1904.08779).

    Each mask has a drawn width from 0 up to its maximum. A time mask hides at most `time_share` of the utterance, even
    if `time_width` allows more. `time_warp` moves a drawn frame by up to that many frames and stretches both sides.
    `fill: zero` is right for normalized features, `mean` (of the utterance) for all others.
    """

    frequency_masks: int = 2
    frequency_width: int = 27
    time_masks: int = 2
    time_width: int = 100
    time_share: float = 0.2
    time_warp: int = 0
    fill: Literal["zero", "mean"] = "zero"

    def __post_init__(self) -> None:
        super().__post_init__()
        counts = (self.frequency_masks, self.frequency_width, self.time_masks, self.time_width, self.time_warp)
        if min(counts) < 0 or not 0 <= self.time_share <= 1:
            raise UsageError(
                f"Numbers and widths of masks must not be negative, and `time_share` must be from 0 to 1; "
                f"got {', '.join(map(str, counts))} and {self.time_share}."
            )
        if self.fill not in ("zero", "mean"):
            raise UsageError(f"`fill` must be zero or mean, got {self.fill!r}.")

    def apply(self, features_TF: Floats, random: np.random.Generator) -> Floats:
        fill = np.float32(0.0 if self.fill == "zero" else features_TF.mean())
        result_TF = time_warp(features_TF, self.time_warp, random) if self.time_warp else features_TF.copy()
        frames, size = result_TF.shape
        for _ in range(self.frequency_masks):
            result_TF[:, _draw_mask(size, self.frequency_width, random)] = fill
        for _ in range(self.time_masks):
            result_TF[_draw_mask(frames, min(self.time_width, int(self.time_share * frames)), random)] = fill
        return result_TF


def _draw_mask(size: int, widest: int, random: np.random.Generator) -> slice:
    width = int(random.integers(min(widest, size) + 1))
    start = int(random.integers(size - width + 1))
    return slice(start, start + width)


def time_warp(features_TF: Floats, widest: int, random: np.random.Generator) -> Floats:
    """Features with a drawn frame moved by up to `widest` frames, and both sides stretched; the ends stay in place."""
    last = len(features_TF) - 1
    widest = min(widest, (last - 2) // 2)
    if widest < 1:
        return features_TF.copy()
    source = int(random.integers(widest + 1, last - widest))
    target = source + int(random.integers(-widest, widest + 1))
    place_T = np.interp(np.arange(last + 1), [0, target, last], [0, source, last])
    before_T = np.minimum(place_T.astype(np.int64), last - 1)
    share_T1 = (place_T - before_T)[:, None].astype(np.float32)
    result_TF: Floats = features_TF[before_T] * (1 - share_T1) + features_TF[before_T + 1] * share_T1
    return result_TF


# the argument of each effect that is drawn
_LIBROSA_AMOUNTS = {"time_stretch": "rate", "pitch_shift": "n_steps"}
_LIBROSA_WINDOW = 2048  # samples, librosa's default `n_fft`
# Settings for speech, near those of SoX's `tempo -s`: pieces hold a few pitch periods, the search spans one of 66 Hz.
_PIECE_SECONDS, _OVERLAP_SECONDS, _SEARCH_SECONDS = 0.060, 0.012, 0.015


@serializable
class SpeedPerturbation(WaveformAugmentation):
    """Plays at one of a few speeds (Ko et al. 2015), which changes length and pitch like a tape."""

    factors: tuple[float, ...] = (0.9, 1.0, 1.1)

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.factors or not all(0 < factor < np.inf for factor in self.factors):
            raise UsageError(f"`factors` must be speeds greater than 0, such as [0.9, 1.0, 1.1]; got {self.factors}.")

    def apply(self, samples_N: Floats, sample_rate: int, random: np.random.Generator) -> Floats:
        return change_speed(samples_N, self.factors[random.integers(len(self.factors))])


@serializable
class TempoPerturbation(WaveformAugmentation):
    """Makes speech faster or slower at the same pitch; a factor of 1.1 makes it 1.1 times shorter."""

    factor: tuple[float, float] = (0.85, 1.15)

    def __post_init__(self) -> None:
        super().__post_init__()
        check_range("factor", self.factor, above=0)

    def apply(self, samples_N: Floats, sample_rate: int, random: np.random.Generator) -> Floats:
        return change_tempo(samples_N, random.uniform(*self.factor), sample_rate)


@serializable
class PitchShift(WaveformAugmentation):
    """Makes speech higher or lower by a number of semitones, with the same length."""

    semitones: tuple[float, float] = (-2.0, 2.0)

    def __post_init__(self) -> None:
        super().__post_init__()
        check_range("semitones", self.semitones)

    def apply(self, samples_N: Floats, sample_rate: int, random: np.random.Generator) -> Floats:
        return shift_pitch(samples_N, 2 ** (random.uniform(*self.semitones) / 12), sample_rate)


@serializable
class Gain(WaveformAugmentation):
    """Makes speech louder or softer by a number of decibels; nothing is clipped."""

    decibels: tuple[float, float] = (-10.0, 6.0)

    def __post_init__(self) -> None:
        super().__post_init__()
        check_range("decibels", self.decibels)

    def apply(self, samples_N: Floats, sample_rate: int, random: np.random.Generator) -> Floats:
        return samples_N * np.float32(10 ** (random.uniform(*self.decibels) / 20))


@serializable
class TimeShift(WaveformAugmentation):
    """Moves the audio earlier or later by up to `seconds`; silence fills the gap."""

    seconds: float = 0.05

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 < self.seconds < np.inf:
            raise UsageError(f"`seconds` must be greater than 0, got {self.seconds}.")

    def apply(self, samples_N: Floats, sample_rate: int, random: np.random.Generator) -> Floats:
        shift = round(random.uniform(-self.seconds, self.seconds) * sample_rate)
        shifted_N = np.zeros_like(samples_N)
        if shift >= 0:
            shifted_N[shift:] = samples_N[: max(0, len(samples_N) - shift)]
        else:
            shifted_N[:shift] = samples_N[-shift:]
        return shifted_N


@serializable
class WhiteNoise(WaveformAugmentation):
    """Adds Gaussian noise at a drawn ratio of speech to noise; silence stays silent."""

    snr_db: tuple[float, float] = (10.0, 40.0)

    def __post_init__(self) -> None:
        super().__post_init__()
        check_range("snr_db", self.snr_db)

    def apply(self, samples_N: Floats, sample_rate: int, random: np.random.Generator) -> Floats:
        snr_db = random.uniform(*self.snr_db)
        return mix_at_snr(samples_N, random.standard_normal(len(samples_N), dtype=np.float32), snr_db)


@serializable
class LibrosaEffect(WaveformAugmentation):
    """`time_stretch` or `pitch_shift` of librosa, by an amount drawn from the range `amount`.

    The amount is librosa's `rate` of a time stretch (2 is twice as fast) or the `n_steps` of a pitch shift (semitones).
    `options` are further arguments of the effect or of `librosa.stft`, such as `n_fft`. librosa is imported, and its
    functions are compiled, when the augmentation is made: this takes seconds, but only once for all workers.
    """

    effect: Literal["time_stretch", "pitch_shift"]
    amount: tuple[float, float]
    options: dict[str, bool | int | float | str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.effect not in _LIBROSA_AMOUNTS:
            raise UsageError(
                f"`effect` must be one of {', '.join(_LIBROSA_AMOUNTS)}, "
                f"got {self.effect!r}{did_you_mean(self.effect, _LIBROSA_AMOUNTS)}"
            )
        check_range("amount", self.amount, above=0 if self.effect == "time_stretch" else -np.inf)
        self._check_options()
        try:
            self._change(np.zeros(1, dtype=np.float32), 16000, self.amount[0])
        except Exception as error:  # of any kind: only these options can be the reason
            reason = str(error).partition("\n")[0]
            raise UsageError(
                f"librosa refuses the options {self.options} of {self.effect}: {as_sentence(reason)}"
            ) from None

    def apply(self, samples_N: Floats, sample_rate: int, random: np.random.Generator) -> Floats:
        return self._change(samples_N, sample_rate, random.uniform(*self.amount))

    def _change(self, samples_N: Floats, sample_rate: int, amount: float) -> Floats:
        arguments: dict[str, Any] = {_LIBROSA_AMOUNTS[self.effect]: amount, **self.options}
        size = len(samples_N)
        if self.effect == "pitch_shift":
            arguments["sr"] = sample_rate
        else:
            size = max(1, round(size / amount))
        window = int(arguments.get("n_fft", _LIBROSA_WINDOW))
        effect = getattr(_import_librosa().effects, self.effect)
        changed_N = effect(pad_or_cut(samples_N, max(len(samples_N), window)), **arguments)
        return pad_or_cut(np.asarray(changed_N, dtype=np.float32), size)

    def _check_options(self) -> None:
        librosa = _import_librosa()
        known = {*signature(getattr(librosa.effects, self.effect)).parameters, *signature(librosa.stft).parameters}
        known -= {"y", "sr", "kwargs", "out", "dtype", _LIBROSA_AMOUNTS[self.effect]}
        for name in self.options:
            if name not in known:
                raise UsageError(
                    f"librosa's {self.effect} has no option {name!r}{did_you_mean(name, known)}\n"
                    f"  It has: {', '.join(sorted(known))}."
                )


def _import_librosa() -> Any:
    """The package, imported only when it is needed: this takes seconds."""
    try:
        return import_module("librosa")
    except ModuleNotFoundError as error:
        raise MissingPackageError(f"librosa is not installed ({error}). Install it with: pip install librosa") from None


def power(samples_N: Floats) -> float:
    """The mean square of a signal."""
    return float(np.square(samples_N, dtype=np.float64).mean())


def mix_at_snr(speech_N: Floats, noise_N: Floats, snr_db: float) -> Floats:
    """Speech plus noise of the same length, at a ratio in decibels; unchanged if one of them is silent."""
    speech, noise = power(speech_N), power(noise_N)
    if not speech or not noise:
        return speech_N.copy()
    return speech_N + noise_N * np.float32(np.sqrt(speech / noise / 10 ** (snr_db / 10)))


def pad_or_cut(samples_N: Floats, size: int) -> Floats:
    """The samples cut, or completed with silence, to `size` samples."""
    return np.pad(samples_N[:size], (0, max(0, size - len(samples_N))))


def change_speed(samples_N: Floats, factor: float) -> Floats:
    """The samples played `factor` times as fast: length and pitch change together."""
    size = max(1, round(len(samples_N) / factor))
    return pad_or_cut(np.asarray(soxr.resample(samples_N, factor, 1.0)), size)


def change_tempo(samples_N: Floats, factor: float, sample_rate: int) -> Floats:
    """The samples `factor` times shorter at the same pitch.

    This is WSOLA (Verhelst and Roelands 1993): pieces of speech are cut at one rate and joined at another. Each piece
    begins where it best continues the piece before, close to its place in the new tempo, and is cross-faded.
    """
    size = max(1, round(len(samples_N) / factor))
    piece, overlap, search = (
        max(2, round(seconds * sample_rate)) for seconds in (_PIECE_SECONDS, _OVERLAP_SECONDS, _SEARCH_SECONDS)
    )
    step = piece - overlap
    count = 1 + -(-max(0, size - piece) // step)
    wanted_P = np.round(np.arange(count) * (step * factor)).astype(np.int64)
    padded_N = np.pad(samples_N, (0, max(0, int(wanted_P[-1]) + search + piece - len(samples_N))))
    starts_P = _find_smooth_starts(padded_N, wanted_P, step, overlap, search)
    return _join_pieces(padded_N, starts_P, piece, overlap)[:size]


def _find_smooth_starts(
    samples_N: Floats, wanted_P: NDArray[np.int64], step: int, overlap: int, search: int
) -> NDArray[np.int64]:
    """The start of each piece, at most half a search range from its wanted place, for the smoothest joints."""
    energy_N = np.concatenate([[0.0], np.cumsum(np.square(samples_N, dtype=np.float64))])
    loudness_N = np.sqrt(energy_N[overlap:] - energy_N[:-overlap] + 1e-9).astype(np.float32)
    starts_P = wanted_P.copy()
    for number in range(1, len(starts_P)):
        continuation = starts_P[number - 1] + step
        first = max(0, wanted_P[number] - search // 2)
        likeness = np.correlate(
            samples_N[first : first + search + overlap - 1], samples_N[continuation : continuation + overlap]
        )
        starts_P[number] = first + np.argmax(likeness / loudness_N[first : first + search])
    return starts_P


def _join_pieces(samples_N: Floats, starts_P: NDArray[np.int64], piece: int, overlap: int) -> Floats:
    """The pieces one after the other; each fades in while the piece before fades out."""
    pieces_PW = samples_N[starts_P[:, None] + np.arange(piece)]
    rise_W = ((np.arange(overlap) + 0.5) / overlap).astype(np.float32)
    joints_PW = pieces_PW[1:, :overlap] * rise_W + pieces_PW[:-1, -overlap:] * rise_W[::-1]
    pieces_PW[1:, :overlap] = joints_PW
    return np.concatenate([pieces_PW[:, :-overlap].ravel(), pieces_PW[-1, -overlap:]])


def shift_pitch(samples_N: Floats, factor: float, sample_rate: int) -> Floats:
    """The samples at `factor` times the pitch, with the same length."""
    return pad_or_cut(change_speed(change_tempo(samples_N, 1 / factor, sample_rate), factor), len(samples_N))
