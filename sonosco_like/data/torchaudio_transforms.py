"""torchaudio's transforms by name: spectrograms and cepstra as features, masks as feature augmentations.

A config can only name the transforms that are listed here, and its options are checked against their signatures.
Each utterance is transformed alone, so that its bits do not depend on its neighbours in a batch; the loader computes on
one thread, so that they do not depend on the number of threads or workers either.

Shape suffixes: N samples, T frames, F features.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field
from typing import Any, Literal, TypeAlias, get_args

import numpy as np
import torch
from torch import Tensor

from sonosco_like.data.audio import Floats
from sonosco_like.data.augment import FeatureAugmentation
from sonosco_like.data.features import FeatureExtractor
from sonosco_like.errors import DataError, UsageError, did_you_mean
from sonosco_like.serialization import serializable
from sonosco_like.torchaudio_import import import_torchaudio

FeatureTransform: TypeAlias = Literal["Spectrogram", "MelSpectrogram", "MFCC", "LFCC"]
MaskingTransform: TypeAlias = Literal["FrequencyMasking", "TimeMasking"]
Option: TypeAlias = bool | int | float | str | None
_NESTED = {"melkwargs": "MelSpectrogram", "speckwargs": "Spectrogram"}  # options that hold those of another transform
_WINDOWS = ("hann_window", "hamming_window", "blackman_window", "bartlett_window", "kaiser_window")
_FLOOR = 1e-10  # under a logarithm
_MOST_SEED = 1 << 63


@serializable
class TorchaudioFeatures(FeatureExtractor):
    """The features of a transform of torchaudio, with its own names and defaults for the `options`.

    `log` takes the natural logarithm of a `Spectrogram` or `MelSpectrogram`; `MFCC` and `LFCC` contain a logarithm
    already. A `window_fn` is given by its name, such as `hamming_window`. The sample rate is a field, not an option. A
    waveform that is too short for one window is completed with silence.
    """

    transform: FeatureTransform = "MelSpectrogram"
    options: dict[str, Option | dict[str, Option]] = field(default_factory=dict)
    log: bool = True

    def __post_init__(self) -> None:
        if self.sample_rate <= 0:
            raise UsageError(f"`sample_rate` must be positive, got {self.sample_rate}.")
        options = check_options(self.transform, get_args(FeatureTransform), self.options, given=("sample_rate",))
        if options.get("power", 1) is None:
            raise UsageError(
                "`power` must be a number: without it the spectrogram is complex and cannot be used as features."
            )
        if "sample_rate" in _parameters(self.transform):
            options["sample_rate"] = self.sample_rate
        self._transform = build(self.transform, options)
        self._spectrogram = _find_spectrogram(self._transform)
        try:
            self._size = len(self._features(torch.zeros(self._shortest))[0])
        except (RuntimeError, ValueError) as error:
            raise _refusal(self.transform, error) from None
        if not self._size:
            raise UsageError(f"These options of {self.transform} give no feature at all: {self.options}.")

    @property
    def size(self) -> int:
        return self._size

    @property
    def frame_shift(self) -> float:
        return int(self._spectrogram.hop_length) / self.sample_rate

    def frames(self, seconds: float) -> int:
        inner = self._spectrogram
        samples = max(round(seconds * self.sample_rate), self._shortest) + 2 * int(inner.pad)
        padded = samples + 2 * (int(inner.n_fft) // 2) if inner.center else samples
        return 1 + (padded - int(inner.n_fft)) // int(inner.hop_length)

    def __call__(self, waveforms: Sequence[Tensor]) -> list[Tensor]:
        return [self._features(self._complete(waveform_N)) for waveform_N in waveforms]

    @property
    def _shortest(self) -> int:
        """Samples that one frame needs: a window, or as many as reflecting half a window at both ends needs."""
        inner = self._spectrogram
        needed = int(inner.n_fft) // 2 + 1 if inner.center else int(inner.n_fft)
        return max(1, needed - 2 * int(inner.pad))

    def _complete(self, waveform_N: Tensor) -> Tensor:
        if waveform_N.ndim != 1 or not waveform_N.numel():
            raise DataError(
                f"Features need a waveform of one channel with at least one sample, "
                f"got a tensor of shape {tuple(waveform_N.shape)}."
            )
        samples_N = waveform_N.detach().to("cpu", torch.float32)
        return torch.nn.functional.pad(samples_N, (0, max(0, self._shortest - len(samples_N))))

    def _features(self, samples_N: Tensor) -> Tensor:
        with torch.no_grad():
            features_TF: Tensor = self._transform(samples_N).transpose(0, 1).contiguous()
            if self.log and self.transform in ("Spectrogram", "MelSpectrogram"):
                features_TF = features_TF.clamp_(min=_FLOOR).log_()
        return features_TF


@serializable
class TorchaudioMasking(FeatureAugmentation):
    """Masks of torchaudio's `FrequencyMasking` or `TimeMasking`, drawn from the generator of the utterance.

    The `options` have torchaudio's own names, such as `freq_mask_param`. `count` masks are drawn, one after the other;
    `mask_value` fills them.
    """

    transform: MaskingTransform = "FrequencyMasking"
    options: dict[str, Option] = field(default_factory=dict)
    count: int = 1
    mask_value: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.count < 1:
            raise UsageError(f"`count` must be at least 1, got {self.count}.")
        options = check_options(self.transform, get_args(MaskingTransform), self.options)
        if any(isinstance(value, int | float) and value < 0 for value in options.values()):
            raise UsageError(f"The options of {self.transform} must not be negative, got {self.options}.")
        self._masking = build(self.transform, options)

    def apply(self, features_TF: Floats, random: np.random.Generator) -> Floats:
        masked_1FT = torch.from_numpy(features_TF.T.copy())[None]
        with torch.random.fork_rng(devices=[]):  # torchaudio draws from torch's global generator
            torch.manual_seed(int(random.integers(_MOST_SEED)))
            for _ in range(self.count):
                masked_1FT = self._masking(masked_1FT, self.mask_value)
        masked_TF: Floats = masked_1FT[0].T.contiguous().numpy()
        return masked_TF


def check_options(
    transform: str, allowed: Sequence[str], options: Mapping[str, Any], given: Iterable[str] = ()
) -> dict[str, Any]:
    """The options, with each window function in the place of its name; unknown names are a `UsageError`."""
    if transform not in allowed:
        raise UsageError(
            f"`transform` must be one of {', '.join(allowed)}, got {transform!r}{did_you_mean(transform, allowed)}"
        )
    known = [name for name in _parameters(transform) if name not in given]
    for name in options:
        if name in given:
            raise UsageError(f"`{name}` is a field beside `options`, not one of them. Move it there.")
        if name not in known:
            raise UsageError(
                f"torchaudio's {transform} has no option {name!r}{did_you_mean(name, known)}\n"
                f"  It has: {', '.join(known)}."
            )
    return {name: _option_value(name, value) for name, value in options.items()}


def build(transform: str, options: Mapping[str, Any]) -> Any:
    """The transform with these options; values that torchaudio refuses are a `UsageError`."""
    try:
        return _transform_class(transform)(**options)
    except (TypeError, ValueError, RuntimeError) as error:
        raise _refusal(transform, error) from None


def _option_value(name: str, value: Any) -> Any:
    if name in _NESTED and value is not None:
        if not isinstance(value, Mapping):
            raise UsageError(f"`{name}` must be a mapping of options of {_NESTED[name]}, got {value!r}.")
        return check_options(_NESTED[name], get_args(FeatureTransform), value, given=("sample_rate",))
    if name == "window_fn":
        if value not in _WINDOWS:
            hint = did_you_mean(str(value), _WINDOWS)
            raise UsageError(f"`window_fn` must be one of {', '.join(_WINDOWS)}, got {value!r}{hint}")
        window: Callable[..., Tensor] = getattr(torch, value)
        return window
    return value


def _transform_class(transform: str) -> Any:
    return getattr(import_torchaudio().transforms, transform)


def _parameters(transform: str) -> list[str]:
    return list(inspect.signature(_transform_class(transform)).parameters)


def _find_spectrogram(transform: Any) -> Any:
    """The `Spectrogram` inside a transform, which knows the frames."""
    for name in ("MelSpectrogram", "spectrogram", "Spectrogram"):
        inner = getattr(transform, name, None)
        if inner is not None:
            return _find_spectrogram(inner)
    return transform


def _refusal(transform: str, error: Exception) -> UsageError:
    reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
    return UsageError(f"torchaudio refuses the options of {transform}: {reason.rstrip('.')}.")
