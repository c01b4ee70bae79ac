"""HistoryPlots and the curves behind it."""

from __future__ import annotations

import matplotlib.image
import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.figure import Figure
from tiny_speech import logged, speech_trainer, whole_and_resumed

from sonosco_like.callbacks import history
from sonosco_like.callbacks.history import Curve
from sonosco_like.callbacks.monitors import LogMeasures, LRMonitor
from sonosco_like.callbacks.plots import HistoryPlots, best_of, history_figure, panels_of


def run(*callbacks, **fields):
    trainer = speech_trainer(*callbacks, **fields)
    trainer.start_training()
    return trainer


def curve(values):
    made = Curve()
    for step, value in enumerate(values):
        made.add(0, step, value, most=history.MOST_POINTS)
    return made


@pytest.fixture
def drawn(monkeypatch):
    """Every figure that is saved, as it was drawn."""
    figures, save = [], Figure.savefig

    def savefig(figure, *arguments, **options):
        figures.append(figure)
        return save(figure, *arguments, **options)

    monkeypatch.setattr(Figure, "savefig", savefig)
    return figures


def test_pictures_are_drawn_when_the_training_ends(tmp_path, drawn):
    trainer = speech_trainer(LogMeasures(), HistoryPlots(folder=tmp_path, formats=["png", "pdf", "svg"]))
    rows = logged(trainer)
    trainer.start_training()
    panels = {axes.get_title("left"): axes for axes in drawn[-1].axes}
    for panel, label, name in (("loss", "train", "loss"), ("loss", "val", "val_loss")):
        (line,) = [each for each in panels[panel].lines if each.get_label() == label]
        points = [(step, values[name]) for step, values in rows if name in values]
        assert list(zip(line.get_xdata(), line.get_ydata(), strict=True)) == points
    assert {"loss", "WER", "token accuracy"} <= set(panels)
    assert matplotlib.image.imread(tmp_path / "plots" / "history.png").shape[0] > 300
    assert (tmp_path / "plots" / "history.pdf").read_bytes().startswith(b"%PDF")
    assert "<svg" in (tmp_path / "plots" / "history.svg").read_text()


def test_training_and_validation_of_a_measure_share_a_panel():
    trainer = speech_trainer()
    names = ("loss", "val_loss", "val_word_error_rate", "learning_rate", "memory/now", "memory/peak")
    curves = {name: curve([3.0, 2.0]) for name in names}
    panels = {panel.title: sorted(panel.curves) for panel in panels_of(curves, trainer)}
    assert panels == {
        "loss": ["train", "val"], "word_error_rate": ["val"], "learning_rate": [""], "memory": ["now", "peak"],
    }  # fmt: skip


def test_curves_of_different_heights_have_panels_of_their_own_and_reports_join_their_measure():
    trainer = speech_trainer()
    logged = {
        "loss": curve([3.0, 2.0]), "report/test/loss": curve([2.5]),
        "speed/batches_per_second": curve([2.0]), "speed/audio_seconds_per_second": curve([80.0]),
    }  # fmt: skip
    panels = {panel.title: sorted(panel.curves) for panel in panels_of(logged, trainer)}
    assert panels == {
        "loss": ["report test", "train"], "speed/batches_per_second": [""], "speed/audio_seconds_per_second": [""],
    }  # fmt: skip


def test_a_model_of_many_layers_gives_a_page_that_can_be_drawn():
    trainer = speech_trainer()
    layers = [f"encoder.{number}" for number in range(60)]
    logged = {f"layer_gradient_norm/{layer}": curve([float(place + 1)]) for place, layer in enumerate(layers)}
    logged |= {f"gradient/{layer}/{name}": curve([1.0]) for layer in layers for name in ("norm", "mean")}
    figure = history_figure({"loss": curve([2.0]), **logged}, trainer)
    assert [axes.get_title("left") for axes in figure.axes][:2] == ["loss", "layer gradient norm"]
    assert len(figure.axes) == 24
    assert figure.axes[1].get_legend() is None
    assert figure.get_supxlabel() == "38 further panels are not drawn."


@pytest.mark.parametrize(
    ("values", "scale"), [([20.0, 3.0, 2.0], "log"), ([3.0, 2.0], "linear"), ([20.0, 0.0], "linear")]
)
def test_a_loss_that_begins_high_is_drawn_on_a_log_scale(values, scale):
    (axes,) = history_figure({"loss": curve(values)}, speech_trainer()).axes
    assert axes.get_yscale() == scale


def test_a_figure_shows_every_logged_value_and_marks_the_best():
    trainer = speech_trainer()
    shown = {"loss": curve([3.0, 2.0]), "val_loss": curve([3.0, 1.5, 2.0]), "speed": curve([1.0])}
    loss, speed = (axes for axes in history_figure(shown, trainer).axes if axes.axison)
    assert [list(line.get_ydata()) for line in loss.lines] == [[3.0, 2.0], [3.0, 1.5, 2.0], [1.5]]
    assert loss.get_title("right") == "best 1.5 at step 1"
    assert speed.get_title("left") == "speed"


def test_the_best_follows_the_direction_the_metric_declares():
    trainer = speech_trainer()
    values = curve([0.5, float("nan"), 0.9, 0.1, 0.9])
    assert best_of("val_word_error_rate", values, trainer) == (3, 0.1)
    assert best_of("val_token_accuracy", values, trainer) == (2, 0.9)
    assert best_of("learning_rate", values, trainer) is None
    assert best_of("val_loss", curve([float("inf")]), trainer) is None


def test_pictures_are_drawn_at_the_interval_and_after_an_error(tmp_path):
    drawn = tmp_path / "plots" / "history.png"
    seen = []

    def look(epoch, step, performance_measures, context):
        seen.append(drawn.exists())
        if context.global_step == 6:
            drawn.unlink()
            raise RuntimeError("broken")

    with pytest.raises(Exception, match="broken"):
        run(LogMeasures(every="1ba"), HistoryPlots(folder=tmp_path, every="3ba"), look)
    assert seen == [False, False, True, True, True, True]
    assert drawn.exists()


def test_a_run_without_logs_says_what_is_missing(tmp_path, caplog):
    run(HistoryPlots(folder=tmp_path))
    assert "LogMeasures" in caplog.text
    assert not (tmp_path / "plots").exists()


@pytest.mark.parametrize("at", [3, 8])
def test_the_curves_of_a_resumed_run_are_those_of_the_unbroken_one(at, tmp_path, monkeypatch):
    monkeypatch.setattr(history, "MOST_POINTS", 4)
    callbacks = [LogMeasures(every="1ba"), LRMonitor(every="1ba"), HistoryPlots(folder=tmp_path)]
    whole, resumed = whole_and_resumed(at, tmp_path, *callbacks)
    assert resumed.callbacks[2].curves == whole.callbacks[2].curves
    assert 0 < len(whole.callbacks[2].curves["loss"]) <= 4


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=300))
def test_a_thinned_curve_is_short_even_and_exact_at_its_ends_and_extremes(values):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(history, "MOST_POINTS", 10)
        thin = curve(values)
    assert len(thin) <= 10
    assert thin.steps[0] == 0
    assert thin.steps[-1] == len(values) - 1
    assert thin.values == [values[step] for step in thin.steps]
    assert all(after - before == thin.stride for before, after in zip(thin.steps[:-2], thin.steps[1:-1], strict=True))
    assert thin.lowest == (min(values), values.index(min(values)))
    assert thin.highest == (max(values), values.index(max(values)))


def test_a_value_logged_again_at_a_step_takes_the_place_of_the_first():
    thin = curve([1.0, 2.0])
    thin.add(0, 1, 5.0)
    assert (thin.steps, thin.values) == ([0, 1], [1.0, 5.0])
