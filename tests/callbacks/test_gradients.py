"""Norms and statistics of gradients, against those taken by hand in the same run."""

from __future__ import annotations

import pytest
import torch
from tiny_speech import differences, logged, speech_trainer, whole_and_resumed

from sonosco_like.callbacks import GradMonitor, LayerwiseGradientNorm, ThresholdStopper
from sonosco_like.callbacks.monitors import distribution_of, gradients_by_layer, norm_of, statistics_of
from sonosco_like.errors import UsageError


def noted_gradients(trainer) -> list[dict[str, torch.Tensor]]:
    """Have a trainer note the gradients before clipping, one row for each step of the optimizer."""
    rows = []

    def note(moment):
        rows.append({name: p.grad.clone() for name, p in moment.context.model.named_parameters() if p.grad is not None})

    trainer.add_callback(("pre-clip_gradients", lambda trainer: note(type("M", (), {"context": trainer}))))
    return rows


def of_layer(row: dict[str, torch.Tensor], layer: str) -> torch.Tensor:
    return torch.cat([gradient.flatten() for name, gradient in row.items() if name.rpartition(".")[0] == layer])


def test_norms_of_layers_are_averaged_over_the_steps_of_an_epoch():
    collector = LayerwiseGradientNorm()
    trainer = speech_trainer(collector, clip_grads=0.01, val_data_loader=None)
    rows, log = noted_gradients(trainer), logged(trainer)
    trainer.start_training()
    assert len(rows) == 12
    assert len(collector.norms) == 3
    for epoch, norms in enumerate(collector.norms):
        assert norms.keys() == {name.rpartition(".")[0] for name, _ in trainer.model.named_parameters()}
        for layer, norm in norms.items():
            by_hand = [of_layer(row, layer).norm().item() for row in rows[4 * epoch : 4 * epoch + 4]]
            assert norm == pytest.approx(sum(by_hand) / 4, rel=1e-5)
    assert [step for step, _ in log] == [4, 8, 12]
    assert log[0][1] == {f"layer_gradient_norm/{layer}": norm for layer, norm in collector.norms[0].items()}


def test_an_epoch_is_complete_though_its_last_validation_stops_the_run():
    collector = LayerwiseGradientNorm()
    trainer = speech_trainer(ThresholdStopper(monitor="val_loss", threshold=1e9), collector, test_step=None)
    trainer.start_training()
    assert len(collector.norms) == 1
    trainer.set_callbacks([collector])
    trainer.continue_training()
    assert len(collector.norms) == 3


@pytest.mark.parametrize("at", [2, 4, 7])
def test_the_norms_of_a_resumed_run_are_those_of_the_whole_one(at, tmp_path):
    whole, resumed = whole_and_resumed(at, tmp_path, LayerwiseGradientNorm())
    assert whole.callbacks[0].norms == resumed.callbacks[0].norms
    assert differences(whole, resumed) == []


def test_statistics_are_logged_at_every_nth_step_of_the_optimizer():
    trainer = speech_trainer(GradMonitor(every=2), accumulate_gradients=2, clip_grads=0.01, val_data_loader=None)
    rows, log = noted_gradients(trainer), logged(trainer)
    trainer.start_training()
    assert len(rows) == 6
    assert len(log) == 3
    for (_, values), row in zip(log, rows[1::2], strict=True):
        everything = torch.cat([gradient.flatten() for gradient in row.values()])
        assert values["gradient/norm"] == pytest.approx(everything.norm().item(), rel=1e-5)
        layer = of_layer(row, "decoder.embedding")
        assert values["gradient/decoder.embedding/std"] == pytest.approx(layer.std(correction=0).item(), rel=1e-4)
        assert values["gradient/decoder.embedding/zeros"] == pytest.approx((layer == 0).float().mean().item())
        assert values["gradient/decoder.embedding/max"] == pytest.approx(layer.abs().max().item())


def test_layers_can_be_left_out_and_distributions_added():
    trainer = speech_trainer(GradMonitor(every=12, layers=False, distributions=True), val_data_loader=None)
    log = logged(trainer)
    trainer.start_training()
    assert log[0][1].keys() == {"gradient/norm"}
    distribution = log[1][1]["gradient/ctc_output/distribution"]
    assert distribution.tolist() == sorted(distribution.tolist())


def test_the_count_of_steps_survives_a_resume(tmp_path):
    whole, resumed = whole_and_resumed(5, tmp_path, GradMonitor(every=3))
    assert whole.callbacks[0].steps == resumed.callbacks[0].steps == 12


def test_gradients_are_found_by_the_module_that_owns_them():
    model = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.ReLU(), torch.nn.Linear(2, 1))
    model(torch.ones(1, 2)).sum().backward()
    model[0].bias.grad = None
    found = gradients_by_layer(model)
    assert {layer: len(gradients) for layer, gradients in found.items()} == {"0": 1, "2": 2}


def test_statistics_of_known_values():
    found = {name: value.item() for name, value in statistics_of([torch.tensor([3.0, -4.0]), torch.zeros(2)]).items()}
    assert found == pytest.approx({"norm": 5.0, "mean": -0.25, "std": 2.4875, "max": 4.0, "zeros": 0.5}, rel=1e-4)
    assert norm_of([torch.tensor([3.0]), torch.tensor([-4.0])]).item() == 5.0


def test_a_distribution_has_the_ends_and_no_more_points_than_asked_for():
    assert distribution_of([torch.tensor([3.0, 1.0]), torch.tensor([2.0])]).tolist() == [1.0, 2.0, 3.0]
    assert distribution_of([torch.arange(1001.0)], points=11).tolist() == [100.0 * place for place in range(11)]


def test_an_interval_of_no_steps_is_refused():
    with pytest.raises(UsageError, match="at least 1 step of the optimizer"):
        GradMonitor(every=0)
