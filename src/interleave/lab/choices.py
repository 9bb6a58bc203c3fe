"""What every experiment with a model lets its reader choose, and what the profiles set alike."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator

from interleave.model.sources import check_source


class ModelChoices(BaseModel):
    """Weights, their type and the device; the base of an experiment's `Params`."""

    model_config = ConfigDict(frozen=True, strict=True, extra="forbid")

    model: str = Field("smollm2", description="weights: smollm2, tiny..., dummy:CONFIG, a folder or hub name")
    dtype: Literal["fp32", "fp16", "bf16"] = Field("fp32", description="type of weights and cache")
    device: Literal["cpu", "cuda"] = Field("cpu", description="where the engine runs")

    @field_validator("model")
    @classmethod
    def _known(cls, name: str) -> str:
        check_source(name)
        return name


class WorkloadChoices(ModelChoices):
    """And the scale of the published workload."""

    scale: Literal[1, 2, 4, 8, 16] = Field(
        16, description="divides the published lengths, block size and chunk budget"
    )


CPU_PROFILE: dict[str, Any] = {"scale": 4}
GPU_PROFILE: dict[str, Any] = {
    "model": "dummy:qwen2.5-1.5b",
    "dtype": "fp16",
    "device": "cuda",
    "scale": 1,
}
