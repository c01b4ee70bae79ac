"""Pictures of samples: the log-mel features, and where in them the model found each token, on one time axis.

Drawn with Pillow: a figure of matplotlib takes twenty times as long, and a validation draws one for each sample.
"""

from __future__ import annotations

import functools
import importlib.util
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from sonosco_like.callbacks.destination import Image
from sonosco_like.callbacks.text_comparison.samples import Sample, Weights

_WIDTH, _MARGIN, _GAP = 360, 40, 20  # pixels: of the time axis, of the tokens left of it, of a title
_ROW = 13
_TICKS = 18
_GAMMA = 0.7  # below 1, so that small values are visible too
_INK, _PAPER = (60, 64, 67), (255, 255, 255)
_LOUD = np.array([[13, 8, 35], [72, 20, 104], [159, 42, 99], [229, 92, 48], [252, 181, 69], [252, 253, 191]])
_SURE = np.array([[255, 255, 255], [198, 219, 239], [107, 157, 214], [33, 90, 168], [8, 38, 94]])
_TITLES = {"attention": "attention, teacher-forced", "ctc": "CTC probabilities"}

Pixels = NDArray[np.uint8]


def spectrogram_picture(sample: Sample) -> Image:
    """The features over time, low ones at the bottom."""
    features_FT = as_bytes(sample.features_TF.T[::-1])
    high = max(1, round(120 / len(features_FT)))
    pixels = _stretch(_colour(features_FT, _LOUD), len(features_FT) * high)
    return _picture([("log-mel features", pixels, ())], sample.duration)


def alignment_picture(sample: Sample) -> Image | None:
    """A row for each token, dark where its weight is high; None if the model has no weights."""
    panels = []
    for weights in sample.weights:
        pixels = _colour(weights_as_bytes(weights), _SURE)
        panels.append((_TITLES[weights.name], _stretch(pixels, _ROW * len(weights.tokens)), weights.tokens))
    return _picture(panels, sample.duration) if panels else None


def as_bytes(values: NDArray[np.float32]) -> Pixels:
    """Values of any range as 0 to 255; the few lowest and highest are cut off."""
    low, high = np.percentile(values, [2, 99.5]) if values.size else (0.0, 1.0)
    return (255 * ((values - low) / max(high - low, 1e-6)).clip(0, 1)).astype(np.uint8)


def weights_as_bytes(weights: Weights) -> Pixels:
    """Weights from 0 to 1 as 0 to 255."""
    return (255 * weights.weights_US.clip(0, 1)).astype(np.uint8)


def _picture(panels: list[tuple[str, Pixels, tuple[str, ...]]], duration: float) -> Image:
    from PIL import Image as Pillow
    from PIL import ImageDraw

    height = sum(_GAP + len(pixels) for _, pixels, _ in panels) + _TICKS
    canvas = Pillow.new("RGB", (_MARGIN + _WIDTH + 8, height), _PAPER)
    draw, top = ImageDraw.Draw(canvas), 0
    for title, pixels, tokens in panels:
        draw.text((_MARGIN, top + 3), title, _INK, _font())
        top += _GAP
        canvas.paste(Pillow.fromarray(pixels), (_MARGIN, top))
        for row, token in enumerate(tokens):
            draw.text((_MARGIN - 6, top + row * _ROW + _ROW // 2), token[:5], _INK, _font(), anchor="rm")
        top += len(pixels)
    _draw_ticks(draw, top, duration)
    return Image(torch.from_numpy(np.asarray(canvas).copy()))


def _draw_ticks(draw: Any, top: int, duration: float) -> None:
    step = next((each for each in (0.1, 0.25, 0.5, 1, 2, 5, 10, 30) if duration / each <= 7), 60)
    for number in range(int(duration / step) + 1 if duration else 0):
        x = _MARGIN + round(_WIDTH * number * step / duration)
        draw.line((x, top, x, top + 4), _INK)
        draw.text((x, top + 5), f"{number * step:g} s", _INK, _font(), anchor="ma" if number else "la")


def _colour(values: Pixels, anchors: NDArray[np.int64]) -> Pixels:
    places = np.linspace(0, 255, len(anchors))
    brightness = 255 * np.linspace(0, 1, 256) ** _GAMMA
    table = np.stack([np.interp(brightness, places, anchors[:, channel]) for channel in range(3)], 1)
    return table.astype(np.uint8)[values]


def _stretch(pixels: Pixels, height: int) -> Pixels:
    """Pixels drawn larger (or columns left out), so that every picture has the same time axis."""
    rows = np.arange(height) * len(pixels) // max(height, 1)
    columns = np.arange(_WIDTH) * pixels.shape[1] // _WIDTH
    return np.ascontiguousarray(pixels[rows][:, columns])


@functools.cache
def _font() -> Any:
    """The font that comes with matplotlib: it knows far more scripts than that of Pillow."""
    from PIL import ImageFont

    package = importlib.util.find_spec("matplotlib")
    folder = Path(package.origin).parent if package is not None and package.origin else Path()
    file = folder / "mpl-data" / "fonts" / "ttf" / "DejaVuSans.ttf"
    return ImageFont.truetype(str(file), 11) if file.exists() else ImageFont.load_default()
