"""What the smoke run on a GPU host looks at: agreement with transformers, parity, and a closed batch.

Each section is a generator of plain results, one dict per finished piece, so that whoever runs it
can store every piece as it comes. Knows no files, processes or time limits but the one deadline it is
given.
"""

from __future__ import annotations

import gc
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any

import torch
from torch import Tensor

from interleave.engine.batched import StepOutcome
from interleave.engine.loop import serve
from interleave.engine.memory import PeakMemory
from interleave.engine.nocache import causal
from interleave.engine.records import RunLog
from interleave.lab.gate import gate_model
from interleave.lab.gate_trials import prompt_ids
from interleave.lab.serving import touch_pool, trace_engine
from interleave.lab.workload import (
    requests_from_trace,
    scaled_block_tokens,
    scaled_chunk_budget,
    workload,
)
from interleave.model.config_hf import shipped_config
from interleave.model.decoder import Decoder
from interleave.model.sources import DTYPES, LoadedModel, default_ops, load_model
from interleave.model.weights import random_weights
from interleave.model.weights_hf import load_folder

Say = Callable[[str], None]
Result = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Size:
    """agreement, parity: shipped configs, with the layers kept of each. The parity gate runs its own
    untied, because a tied random model repeats its last token. batch: a model that `load_model` knows.
    """

    agreement: tuple[tuple[str, int], ...]
    agreement_tokens: int
    parity: tuple[str, int]
    batch: str
    batch_scale: int


SIZES = {
    "full": Size(
        (("qwen2.5-1.5b", 4), ("smollm2-135m", 8)), 512, ("smollm2-135m", 8), "dummy:qwen2.5-1.5b", 1
    ),
    "tiny": Size((("tiny-gqa4-bias", 2), ("tiny-wide", 2)), 40, ("tiny-gqa3", 2), "dummy:tiny-gqa3", 64),
}


class OutOfTime(RuntimeError):
    """The deadline of a section has passed."""


def agreement(size: Size, device: str, deadline_s: float, say: Say) -> Iterator[Result]:
    """Largest difference of logits, relative to the largest logit of a position, on the same weights.

    hf_from_fp32 says how far transformers itself is from its own float32: the yardstick in fp16.
    """
    for name, num_layers in size.agreement:
        with tempfile.TemporaryDirectory() as scratch:
            folder = Path(scratch)
            ids = _write_hf_model(name, num_layers, folder, device, size.agreement_tokens)
            wide = _hf_logits(folder, "fp32", device, ids)
            for dtype in ("fp32", "fp16"):
                _check(deadline_s)
                theirs = wide if dtype == "fp32" else _hf_logits(folder, dtype, device, ids)
                config, weights = load_folder(folder, DTYPES[dtype], device)
                decoder = Decoder(config, weights, default_ops(weights))
                hidden = decoder.forward(ids, torch.arange(len(ids), device=device), causal)
                ours = decoder.logits(hidden)
                yield {
                    "config": name,
                    "layers": num_layers,
                    "dtype": dtype,
                    "tokens": len(ids),
                    "ours_from_hf": _largest_gap(ours, theirs),
                    "ours_from_fp32": _largest_gap(ours, wide),
                    "hf_from_fp32": _largest_gap(theirs, wide),
                }
                say(f"{name} {dtype} compared")


def _write_hf_model(name: str, num_layers: int, folder: Path, device: str, num_tokens: int) -> Tensor:
    """Save a seeded transformers model with the shape of a shipped config; token ids to try it with."""
    from transformers import LlamaConfig, LlamaForCausalLM, Qwen2Config, Qwen2ForCausalLM

    shape = shipped_config(name)
    config_class, model_class = (
        (Qwen2Config, Qwen2ForCausalLM) if shape.qkv_bias else (LlamaConfig, LlamaForCausalLM)
    )
    sizes = (
        "vocab_size hidden_size intermediate_size num_attention_heads num_key_value_heads rms_norm_eps "
        "max_position_embeddings tie_word_embeddings"
    )
    config = config_class(
        **{field: getattr(shape, field) for field in sizes.split()},
        num_hidden_layers=num_layers,
        head_dim=shape.head_dim,
        rope_parameters={"rope_type": "default", "rope_theta": shape.rope_theta},
    )
    generator = torch.Generator(device).manual_seed(7)
    with torch.device(device):
        model = model_class(config)
    with torch.no_grad():
        for parameter in model.parameters():
            # Biases and norms too: initial values of 0 and 1 would hide mistakes.
            scale = 0.5 if parameter.ndim == 1 else parameter.shape[1] ** -0.5
            parameter.normal_(0.0, scale, generator=generator)
    model.save_pretrained(folder)
    return torch.randint(0, shape.vocab_size, (num_tokens,), generator=generator, device=device)


@torch.inference_mode()
def _hf_logits(folder: Path, dtype: str, device: str, ids: Tensor) -> Tensor:
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(folder, dtype=DTYPES[dtype]).to(device).eval()
    return model(input_ids=ids[None]).logits[0].float()


def _largest_gap(one: Tensor, other: Tensor) -> float:
    return float(((one - other).abs().amax(-1) / other.abs().amax(-1)).max())


def parity(size: Size, device: str, deadline_s: float, say: Say, backend: str) -> Iterator[Result]:
    """The quick parity gate through one attention backend, in float32 and float16."""

    def hear(line: str) -> None:
        say(line)
        _check(deadline_s)

    name, num_layers = size.parity
    config = replace(shipped_config(name), tie_word_embeddings=False, num_hidden_layers=num_layers)
    for dtype in ("fp32", "fp16"):
        weights = random_weights(config, 0, DTYPES[dtype], device)
        decoder = Decoder(config, weights, default_ops(weights))
        model = LoadedModel(
            config, decoder, None, f"{name}, {num_layers} layers, untied (random weights, seed 0)"
        )
        document = gate_model(model, quick=True, backends=[backend], say=hear)
        yield {name: value for name, value in document.items() if name != "trials"}


def closed_batch(
    size: Size, device: str, deadline_s: float, say: Say, backend: str, engines: Sequence[str]
) -> Iterator[Result]:
    """mixed32 at once through each engine: wall time, decode steps, parts, peak memory.

    A run that meets the deadline is reported as far as it came.
    """
    model = load_model(size.batch, "fp16", device, say=say)
    trace = workload("mixed32", scale=size.batch_scale)
    requests = requests_from_trace(trace, prompt_ids(model))
    for name in engines:
        _check(deadline_s)
        engine = trace_engine(
            name,
            model,
            trace,
            backend=backend,
            chunk_budget=scaled_chunk_budget(size.batch_scale),
            block_tokens=scaled_block_tokens(size.batch_scale),
        )
        pool_bytes = touch_pool(engine)
        serve(engine, [replace(requests[0], max_new_tokens=2)])  # compiles what there is to compile
        log = RunLog()
        with PeakMemory(torch.device(device)) as peak:
            try:
                serve(engine, requests, log=log, on_step=_stop_at(deadline_s))
            except OutOfTime:
                say(f"{name}: out of time after {len(log.steps)} steps")
        say(f"{name}: {log.wall_s:.2f} s")
        yield {
            "engine": name,
            "backend": backend,
            "model": model.description,
            "dtype": "fp16",
            "workload": "mixed32",
            "scale": size.batch_scale,
            "completed": sum(record.finish_reason == "length" for record in log.requests),
            "weight_bytes": model.decoder.weight_bytes,
            "pool_bytes": pool_bytes,
            "peak_bytes": peak.peak_bytes,
            **step_summary(log),
        }
        del engine
        gc.collect()


def step_summary(log: RunLog) -> Result:
    """Wall time, seconds by part, and the median step that only decodes: of all, and with most rows."""
    decoding = [step for step in log.steps if step.decode_rows and not step.prefill_tokens]
    most = max((step.decode_rows for step in decoding), default=0)
    fullest = [step for step in decoding if step.decode_rows == most]
    parts: dict[str, float] = {}
    for step in log.steps:
        for part, seconds in step.parts_s.items():
            parts[part] = parts.get(part, 0.0) + seconds
    return {
        "wall_s": log.wall_s,
        "num_steps": len(log.steps),
        "prefill_tokens": sum(step.prefill_tokens for step in log.steps),
        "num_decode_steps": len(decoding),
        "decode_step_median_s": _median([step.end_s - step.start_s for step in decoding]),
        "most_decode_rows": most,
        "fullest_decode_step_median_s": _median([step.end_s - step.start_s for step in fullest]),
        "parts_s": parts,
        "last_step": asdict(log.steps[-1]) if log.steps else None,
    }


def _median(values: Sequence[float]) -> float | None:
    return median(values) if values else None


def _stop_at(deadline_s: float) -> Callable[[StepOutcome, float], None]:
    return lambda _outcome, _end_s: _check(deadline_s)


def _check(deadline_s: float) -> None:
    if time.monotonic() > deadline_s:
        raise OutOfTime("out of time")
