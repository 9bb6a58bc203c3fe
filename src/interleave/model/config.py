"""The shape of a Llama- or Qwen2-family decoder, as data. Opens no files."""

from __future__ import annotations

from dataclasses import dataclass

MAX_SIZE = 2**22
"""Of any size in a config: four times the largest there is, and small enough to allocate a table of."""


class ModelError(ValueError):
    """A model that cannot be used, with the reason: unknown name, bad config, missing tensor."""


@dataclass(frozen=True, slots=True)
class Llama3Scaling:
    """Llama 3.1's stretching of slow rotary frequencies (Hugging Face's rope_type `llama3`).

    Wavelengths are in positions: those below original_max / high_freq_factor stay, those above
    original_max / low_freq_factor grow by `factor`, the ones between are blended.
    """

    factor: float
    low_freq_factor: float
    high_freq_factor: float
    original_max_position_embeddings: int


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """Sizes and constants of one decoder (names follow Hugging Face's `config.json`).

    head_dim * num_attention_heads is the width of Q; each KV head serves
    `num_attention_heads / num_key_value_heads` query heads (grouped-query attention).
    """

    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_hidden_layers: int
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    rms_norm_eps: float
    rope_theta: float
    max_position_embeddings: int
    tie_word_embeddings: bool
    qkv_bias: bool
    rope_scaling: Llama3Scaling | None = None
    bos_token_id: int | None = None
    eos_token_ids: tuple[int, ...] = ()
    name: str = "unnamed"

    def __post_init__(self) -> None:
        for field in (
            "vocab_size hidden_size intermediate_size num_hidden_layers num_attention_heads "
            "num_key_value_heads head_dim max_position_embeddings"
        ).split():
            value = getattr(self, field)
            if not isinstance(value, int) or value < 1:
                raise ValueError(f"model config: {field} must be an integer of at least 1, got {value!r}")
            if value > MAX_SIZE:
                raise ValueError(f"model config: {field} must be at most {MAX_SIZE}, got {value!r}")
        if self.num_attention_heads % self.num_key_value_heads:
            raise ValueError(
                f"model config: {self.num_attention_heads} attention heads cannot share "
                f"{self.num_key_value_heads} key-value heads evenly"
            )
        if self.head_dim % 2:
            raise ValueError(f"model config: head_dim must be even for rotary embedding, got {self.head_dim}")
        if self.rms_norm_eps <= 0.0 or self.rope_theta <= 0.0:
            raise ValueError(
                f"model config: rms_norm_eps and rope_theta must be positive, "
                f"got {self.rms_norm_eps!r} and {self.rope_theta!r}"
            )

    @property
    def group_size(self) -> int:
        """Query heads that share one KV head."""
        return self.num_attention_heads // self.num_key_value_heads

    @property
    def kv_bytes_per_token_factor(self) -> int:
        """Elements of K and V that one position takes over all layers."""
        return 2 * self.num_hidden_layers * self.num_key_value_heads * self.head_dim
