"""The sizes of a decoder, from its metadata, checked against each other."""

from __future__ import annotations

from dataclasses import dataclass

from pageloom.errors import BadModelFile, NotSupported
from pageloom.model.metadata import Metadata

MAX_LAYERS = 4096
MAX_HEADS = 4096
MAX_WIDTH = 2**20


@dataclass(frozen=True, slots=True)
class Hyperparameters:
    """Widths are in elements, lengths in tokens."""

    architecture: str
    num_layers: int
    hidden_size: int
    ffn_size: int
    num_heads: int
    kv_num_heads: int
    head_size: int
    norm_epsilon: float
    context_length: int

    @property
    def query_width(self) -> int:
        return self.num_heads * self.head_size

    @property
    def kv_width(self) -> int:
        return self.kv_num_heads * self.head_size


def read_hyperparameters(metadata: Metadata) -> Hyperparameters:
    """Raises `BadModelFile` for a size that is missing, out of bounds or does not divide, `NotSupported` for a decoder
    with experts or with key and value heads of different sizes."""
    arch = metadata.text("general.architecture")
    if metadata.integer(f"{arch}.expert_count", 0):
        raise NotSupported(f"{arch}: mixtures of experts are not supported", param=f"{arch}.expert_count")
    hidden_size = metadata.integer(f"{arch}.embedding_length", minimum=1, maximum=MAX_WIDTH)
    num_heads = metadata.integer(f"{arch}.attention.head_count", minimum=1, maximum=MAX_HEADS)
    kv_key = f"{arch}.attention.head_count_kv"
    kv_num_heads = metadata.integer(kv_key, num_heads, minimum=1, maximum=MAX_HEADS)
    if num_heads % kv_num_heads:
        raise BadModelFile(f"{num_heads} query heads do not divide into {kv_num_heads} KV heads", param=kv_key)
    return Hyperparameters(
        architecture=arch,
        num_layers=metadata.integer(f"{arch}.block_count", minimum=1, maximum=MAX_LAYERS),
        hidden_size=hidden_size,
        ffn_size=metadata.integer(f"{arch}.feed_forward_length", minimum=1, maximum=MAX_WIDTH),
        num_heads=num_heads,
        kv_num_heads=kv_num_heads,
        head_size=_head_size(metadata, arch, hidden_size, num_heads),
        norm_epsilon=metadata.number(f"{arch}.attention.layer_norm_rms_epsilon", maximum=1.0),
        context_length=metadata.integer(f"{arch}.context_length", minimum=1),
    )


def _head_size(metadata: Metadata, arch: str, hidden_size: int, num_heads: int) -> int:
    key = f"{arch}.attention.key_length"
    if key not in metadata and hidden_size % num_heads:
        raise BadModelFile(f"a hidden size of {hidden_size} does not divide into {num_heads} heads", param=key)
    head_size = metadata.integer(key, hidden_size // num_heads, minimum=1, maximum=MAX_WIDTH)
    value_key = f"{arch}.attention.value_length"
    value_size = metadata.integer(value_key, head_size, minimum=1, maximum=MAX_WIDTH)
    if value_size != head_size:
        raise NotSupported(f"key heads of {head_size} with value heads of {value_size}", param=value_key)
    return head_size
