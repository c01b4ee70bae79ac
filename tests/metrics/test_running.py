import multiprocessing

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from sonosco_like.edits import count_word_errors
from sonosco_like.errors import UsageError
from sonosco_like.metrics import RunningMeasures, Sums, error_sums

finite = st.floats(-1e6, 1e6)
batches_of_values = st.lists(st.lists(finite, min_size=1, max_size=7), min_size=1, max_size=12)
texts = st.lists(st.sampled_from(["a", "b", "c"]), max_size=5).map(" ".join)
corpora = st.lists(st.lists(st.tuples(texts, texts), min_size=1, max_size=4), min_size=1, max_size=6)


def running_mean(batches):
    measures = RunningMeasures()
    for values in batches:
        values = torch.tensor(values, dtype=torch.float64)
        measures.add_mean("loss", values.mean(), len(values))
    return measures


@given(batches_of_values)
def test_mean_over_batches_is_the_mean_over_all(batches):
    everything = [value for values in batches for value in values]
    measures = running_mean(batches)
    assert measures["loss"] == pytest.approx(sum(everything) / len(everything), rel=1e-9, abs=1e-6)
    assert measures.weight("loss") == len(everything)


@given(corpora)
def test_error_rate_over_batches_is_exactly_that_of_the_corpus(corpus):
    measures = RunningMeasures()
    for batch in corpus:
        measures.add("wer", error_sums(count_word_errors(*zip(*batch, strict=True))))
    whole = count_word_errors(*zip(*[pair for batch in corpus for pair in batch], strict=True))
    assert measures["wer"] == whole.rate
    assert measures.parts("wer") == {
        "substitutions": whole.substitutions,
        "deletions": whole.deletions,
        "insertions": whole.insertions,
    }


def test_a_constant_stays_what_it_is_whatever_the_batch_sizes():
    measures = running_mean([[1.0] * 7, [1.0], [1.0] * 3])
    assert measures["loss"] == 1.0


@given(batches_of_values, st.integers(0, 12))
def test_merged_processes_give_the_mean_over_all(batches, cut):
    first, second = running_mean(batches[:cut]), running_mean(batches[cut:])
    first.merge(second)
    assert first["loss"] == pytest.approx(running_mean(batches)["loss"], rel=1e-9, abs=1e-6)


@given(batches_of_values, st.integers(0, 12))
def test_state_continues_bit_for_bit(batches, cut):
    resumed = RunningMeasures()
    resumed.load_state_dict(running_mean(batches[:cut]).state_dict())
    for values in batches[cut:]:
        values = torch.tensor(values, dtype=torch.float64)
        resumed.add_mean("loss", values.mean(), len(values))
    assert resumed["loss"] == running_mean(batches)["loss"]


def test_reading_is_current_after_every_batch():
    measures = RunningMeasures()
    measures.add_mean("loss", torch.tensor(2.0), 1)
    assert measures["loss"] == 2.0
    measures.add_mean("loss", torch.tensor(4.0), 3)
    assert measures["loss"] == 3.5


def test_adding_never_reads_the_device():
    measures = RunningMeasures()
    loss = torch.empty((), device="meta", requires_grad=True)
    measures.add_mean("loss", loss, torch.empty((), device="meta"))
    measures.add_mean("loss", loss, torch.empty((), device="meta"))
    with pytest.raises(NotImplementedError, match="meta"):  # only now is a number wanted, which `meta` does not have
        measures["loss"]


def test_sums_are_cut_off_from_the_graph():
    measures = RunningMeasures()
    weights = torch.ones(3, requires_grad=True)
    measures.add_mean("loss", weights.sum(), 1)
    assert not measures._sums["loss"]["total"].requires_grad


def test_millions_of_small_losses_do_not_drown():
    measures = RunningMeasures()
    measures.add_mean("loss", torch.tensor(1.0), 2.0**24)  # where float32 stops counting
    measures.add_mean("loss", torch.tensor(1.0), 1)
    assert measures.weight("loss") == 2.0**24 + 1


def test_is_a_mapping_in_the_order_of_first_addition():
    measures = RunningMeasures()
    measures.add_mean("loss", 1.0, 1)
    measures.add("accuracy", Sums(torch.tensor(3), torch.tensor(4)))
    assert dict(measures) == {"loss": 1.0, "accuracy": 0.75}
    assert len(measures) == 2
    assert "loss" in measures
    with pytest.raises(KeyError):
        measures["val_loss"]
    measures.clear()
    assert not measures


def test_parts_may_not_change_between_batches():
    measures = RunningMeasures()
    measures.add("wer", Sums(1, 2, {"insertions": 1}))
    with pytest.raises(UsageError, match="same parts"):
        measures.add("wer", Sums(1, 2))


def process_of_two(rank, address, queue):
    torch.distributed.init_process_group("gloo", init_method=address, rank=rank, world_size=2)
    measures = RunningMeasures()
    measures.add_mean("loss", torch.tensor(float(rank)), 1 + 2 * rank)
    measures.add("wer", Sums(rank, 1, {"insertions": 5}))
    measures.all_reduce(torch.distributed.all_reduce)
    queue.put((measures["loss"], measures["wer"], measures.parts("wer")))
    torch.distributed.destroy_process_group()


def test_all_reduce_sums_over_real_processes(tmp_path):
    context = multiprocessing.get_context("spawn")
    queue = context.Queue()
    address = f"file://{tmp_path}/meet"
    processes = [context.Process(target=process_of_two, args=(rank, address, queue)) for rank in range(2)]
    for process in processes:
        process.start()
    results = [queue.get(timeout=600) for _ in processes]  # only a process that died takes so long
    for process in processes:
        process.join()
    assert results == [(0.75, 0.5, {"insertions": 10.0})] * 2
