"""The floor of a step: the published arithmetic of the embedded model, and what every engine records."""

import subprocess
import sys

import pytest

from interleave.engine.build import ENGINES, build_engine
from interleave.engine.loop import serve
from interleave.lab.peers.draw import mixed_lengths
from interleave.lab.roofline import (
    Ceilings,
    Roofline,
    Work,
    batch_work,
    body_flops,
    chunk_work,
    decode_work,
    floor_s,
    flops,
    fp32_weight_bytes,
    fraction,
    head_flops,
    moved_bytes,
    step_work,
)
from interleave.model.config_hf import shipped_config
from interleave.model.sources import load_model
from interleave.schedule.request import Request

SMOLLM2 = shipped_config("smollm2-135m")
CEILINGS = Ceilings(20e9, 145e9)


def test_the_embedded_model_by_hand():
    assert body_flops(SMOLLM2) / 1e9 == pytest.approx(0.212, abs=0.0005)
    assert head_flops(SMOLLM2) / 1e9 == pytest.approx(0.057, abs=0.0005)
    assert fp32_weight_bytes(SMOLLM2) / 1e6 == pytest.approx(538, abs=0.5)


@pytest.mark.parametrize(("rows", "ms"), [(1, 27), (8, 32), (32, 63)])
def test_decode_steps_at_context_256(rows, ms):
    assert floor_s(decode_work(rows, 256), SMOLLM2, CEILINGS) * 1e3 == pytest.approx(ms, abs=0.5)


def test_whole_batches():
    """22.2 and 16.5 s with every position through the whole last layer, of which 11,616 and 8,160 positions
    need keys and values only (6.64 MFLOP less each) and whose attention is left out."""
    mixed = mixed_lengths()
    assert (sum(p for p, _ in mixed), sum(n for _, n in mixed)) == (11_648, 1_396)
    assert floor_s(batch_work(mixed), SMOLLM2, CEILINGS) == pytest.approx(22.2 - 0.53 - 0.09, abs=0.05)
    assert floor_s(batch_work([(256, 64)] * 32), SMOLLM2, CEILINGS) == pytest.approx(
        16.5 - 0.37 - 0.02, abs=0.05
    )


def test_positions_that_nobody_samples_skip_most_of_the_last_layer():
    """K and V of one layer are 3 + 3 heads of 64 from 576; nine query heads, output and SwiGLU are skipped."""
    sampled, unsampled = flops(Work(1, 0, 0, 1), SMOLLM2), flops(Work(1, 0, 0, 0), SMOLLM2)
    layer = 576 * 15 * 64 + 576 * 576 + 3 * 576 * 1536
    assert body_flops(SMOLLM2) == 2 * 30 * layer
    assert sampled - unsampled - head_flops(SMOLLM2) == 2 * (layer - 576 * 6 * 64)


def test_the_last_chunk_of_a_long_prompt():
    """512 positions after 1536, one of them sampled: 171 GFLOP, 1.18 s at the limit."""
    work = chunk_work(1536, 512, 1)
    assert work.attended_tokens == sum(range(1537, 2049))
    assert floor_s(work, SMOLLM2, CEILINGS) == pytest.approx(1.18, abs=0.15)
    assert floor_s(work, SMOLLM2, CEILINGS) == flops(work, SMOLLM2) / 145e9


def test_fewer_bytes_lower_the_floor_of_a_step_that_memory_limits_only():
    half = fp32_weight_bytes(SMOLLM2) // 2
    one, many = decode_work(1, 256), decode_work(32, 256)
    assert floor_s(one, SMOLLM2, CEILINGS, weight_bytes=half) < floor_s(one, SMOLLM2, CEILINGS)
    assert floor_s(many, SMOLLM2, CEILINGS, weight_bytes=half) == floor_s(many, SMOLLM2, CEILINGS)
    assert moved_bytes(one, SMOLLM2, half, 2) == half + 256 * 2 * 30 * 3 * 64 * 2


def test_work_adds_up_position_by_position():
    """A prompt in chunks, then decodes, is the work of the batch in as many steps."""
    steps = [chunk_work(0, 4, 0), chunk_work(4, 3, 1), decode_work(1, 8), decode_work(1, 9)]
    total = sum(steps[1:], start=steps[0])
    whole = batch_work([(7, 3)])
    assert (total.query_tokens, total.attended_tokens) == (whole.query_tokens, whole.attended_tokens)
    assert total.sampled_rows == whole.sampled_rows == 3
    assert (total.steps, whole.steps) == (4, 3)


@pytest.mark.parametrize("bad", [(0, 1), (1, 0)])
def test_empty_requests_are_refused(bad):
    with pytest.raises(ValueError, match="at least one prompt and one new token"):
        batch_work([bad])


@pytest.mark.parametrize("bad", [(0, 1), (1, -1), (float("nan"), 1)])
def test_ceilings_are_positive(bad):
    with pytest.raises(ValueError, match="must be above 0"):
        Ceilings(*bad)


def test_fractions():
    assert fraction(1.0, 2.0) == 0.5
    assert fraction(None, 2.0) is None
    assert fraction(1.0, 0.0) is None
    assert floor_s(Work(0, 0, 0, 0), SMOLLM2, CEILINGS) == 0.0


@pytest.mark.parametrize("engine", ENGINES)
def test_every_engine_records_what_was_asked_for(engine, one_thread):
    """Steps of every engine sum to the positions, keys and tokens of the requests: no padding, no held rows."""
    model = load_model("tiny-gqa3")
    lengths = [(5, 4), (9, 1), (2, 7)]
    built = build_engine(
        engine, model.decoder, max_rows=3, chunk_budget=4, block_tokens=4, max_request_tokens=16
    )
    log = serve(built, [Request(f"r{i}", tuple(range(1, p + 1)), n) for i, (p, n) in enumerate(lengths)])
    total = sum((step_work(record) for record in log.steps[1:]), start=step_work(log.steps[0]))
    whole = batch_work(lengths)
    assert total.query_tokens == whole.query_tokens
    assert total.attended_tokens == whole.attended_tokens
    assert total.sampled_rows == whole.sampled_rows
    assert total.context_tokens >= whole.context_tokens  # a chunk reads the history before it again
    roofline = Roofline(model.config, CEILINGS, model.decoder.step_weight_bytes)
    assert roofline.run_floor_s(log.steps) == pytest.approx(sum(map(roofline.step_floor_s, log.steps)))


def test_a_step_reads_every_matrix_once():
    """Tied or not, packed or not: the head is read, the embedding's table is not."""
    for source in ("tiny", "tiny-gqa3"):
        model = load_model(source)
        width = 4 * model.config.hidden_size
        norms = (2 * model.config.num_hidden_layers + 1) * width
        padded = -model.config.vocab_size % 64 * width
        biases = model.decoder.step_weight_bytes - norms - padded - fp32_weight_bytes(model.config)
        assert biases == 0


def test_imports_no_torch():
    code = "import sys, interleave.lab.roofline, interleave.lab.machine_store; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
