"""Tiny Llamas with random weights, as the two engines want them on disk. Nothing is downloaded."""

import json
import random
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import prod
from pathlib import Path
from statistics import NormalDist
from typing import Any

SPECIAL = ("<unk>", "<s>", "</s>")
CHAT = "{% for m in messages %}{{ m['role'] }}: {{ m['content'] }}\n{% endfor %}assistant: "
#: Alignment of a tensor in a GGUF file.
_ALIGNED = 32


@dataclass(frozen=True)
class Size:
    """About 27 million parameters, so that a token is quick and a long prompt takes seconds."""

    hidden: int = 512
    layers: int = 8
    context: int = 32768

    @property
    def inner(self) -> int:
        return self.hidden * 3

    @property
    def heads(self) -> int:
        return self.hidden // 64


def tokens() -> list[str]:
    """A token for each printable character, as byte-level BPE writes it: a space has a sign of its
    own. No others, since random bytes are no text, and llama.cpp then answers 500.
    """
    return [*SPECIAL, "\u0120", *map(chr, range(33, 127))]


def _weights(count: int, seed: int, halves: Sequence[bytes]) -> bytes:
    """Random numbers of two bytes each, from a table of 256."""
    picks = random.Random(seed).randbytes(count)
    out = bytearray(count * 2)
    for at in range(2):
        out[at::2] = picks.translate(bytes(half[at] for half in halves))
    return bytes(out)


def _table(form: str) -> list[bytes]:
    """Numbers around zero, each as likely as the next, little-endian."""
    spread = NormalDist(0, 0.02)
    values = [spread.inv_cdf((at + 0.5) / 256) for at in range(256)]
    if form == "f16":
        return [struct.pack("<e", value) for value in values]
    return [struct.pack("<f", value)[2:] for value in values]


# --- for vLLM: a folder in the format of Hugging Face ---------------------------------------------


def hf_model(folder: Path, size: Size | None = None) -> None:
    size = size or Size()
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in (
        ("config.json", _config(size)),
        ("tokenizer.json", _tokenizer()),
        ("tokenizer_config.json", _tokenizer_config()),
    ):
        (folder / name).write_text(json.dumps(content))
    _safetensors(folder / "model.safetensors", dict(_hf_shapes(size)))


def _config(size: Size) -> dict[str, Any]:
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": size.hidden,
        "intermediate_size": size.inner,
        "num_hidden_layers": size.layers,
        "num_attention_heads": size.heads,
        "num_key_value_heads": size.heads,
        "head_dim": 64,
        "hidden_act": "silu",
        "max_position_embeddings": size.context,
        "vocab_size": len(tokens()),
        "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0,
        "bos_token_id": 1,
        "eos_token_id": 2,
        "tie_word_embeddings": False,
        "torch_dtype": "bfloat16",
    }


def _tokenizer() -> dict[str, Any]:
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True}
    plain = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [
            {"id": at, "content": text, "special": True, **plain} for at, text in enumerate(SPECIAL)
        ],
        "normalizer": None,
        "pre_tokenizer": {**level, "use_regex": True},
        "post_processor": None,
        "decoder": {**level, "use_regex": True},
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": SPECIAL[0],
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": False,
            "vocab": {text: at for at, text in enumerate(tokens())},
            "merges": [],
        },
    }


def _tokenizer_config() -> dict[str, Any]:
    named = dict(zip(("unk_token", "bos_token", "eos_token"), SPECIAL, strict=True))
    return {"tokenizer_class": "PreTrainedTokenizerFast", "chat_template": CHAT, **named}


def _hf_shapes(size: Size) -> Iterator[tuple[str, tuple[int, ...]]]:
    hidden, inner, vocabulary = size.hidden, size.inner, len(tokens())
    yield "model.embed_tokens.weight", (vocabulary, hidden)
    for at in range(size.layers):
        layer = f"model.layers.{at}"
        for norm in ("input_layernorm", "post_attention_layernorm"):
            yield f"{layer}.{norm}.weight", (hidden,)
        for part in "qkvo":
            yield f"{layer}.self_attn.{part}_proj.weight", (hidden, hidden)
        for part in ("gate", "up"):
            yield f"{layer}.mlp.{part}_proj.weight", (inner, hidden)
        yield f"{layer}.mlp.down_proj.weight", (hidden, inner)
    yield "model.norm.weight", (hidden,)
    yield "lm_head.weight", (vocabulary, hidden)


def _safetensors(path: Path, shapes: dict[str, tuple[int, ...]]) -> None:
    """A length, a header in JSON that says where each tensor lies, and the tensors."""
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    end = 0
    for name, shape in shapes.items():
        begin, end = end, end + prod(shape) * 2
        header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [begin, end]}
    text = json.dumps(header).encode()
    table, one = _table("bf16"), struct.pack("<f", 1)[2:]
    with path.open("wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for seed, shape in enumerate(shapes.values()):
            is_norm = len(shape) == 1
            file.write(one * shape[0] if is_norm else _weights(prod(shape), seed, table))


# --- for llama.cpp: one GGUF file -----------------------------------------------------------------

_U32, _I32, _F32, _BOOL, _STRING, _ARRAY = 4, 5, 6, 7, 8, 9
_TENSOR_F32, _TENSOR_F16 = 0, 1


def gguf_model(path: Path, size: Size | None = None) -> None:
    size = size or Size()
    path.parent.mkdir(parents=True, exist_ok=True)
    shapes = dict(_gguf_shapes(size))
    facts = b"".join(_pair(name, kind, value) for name, kind, value in _facts(size))
    places, end = b"", 0
    for name, shape in shapes.items():
        is_norm = len(shape) == 1
        places += _text(name) + struct.pack("<I", len(shape))
        # The dimension that lies together in memory comes first.
        places += b"".join(struct.pack("<Q", each) for each in reversed(shape))
        places += struct.pack("<IQ", _TENSOR_F32 if is_norm else _TENSOR_F16, end)
        end += _padded(prod(shape) * (4 if is_norm else 2))
    head = b"GGUF" + struct.pack("<IQQ", 3, len(shapes), len(list(_facts(size)))) + facts + places
    table = _table("f16")
    with path.open("wb") as file:
        file.write(head.ljust(_padded(len(head)), b"\0"))
        for seed, shape in enumerate(shapes.values()):
            is_norm = len(shape) == 1
            data = struct.pack("<f", 1) * shape[0] if is_norm else b""
            data = data or _weights(prod(shape), seed, table)
            file.write(data.ljust(_padded(len(data)), b"\0"))


def _padded(length: int) -> int:
    return -(-length // _ALIGNED) * _ALIGNED


def _text(text: str) -> bytes:
    raw = text.encode()
    return struct.pack("<Q", len(raw)) + raw


def _pair(name: str, kind: int, value: Any) -> bytes:
    return _text(name) + struct.pack("<I", kind) + _value(kind, value)


def _value(kind: int, value: Any) -> bytes:
    if kind == _STRING:
        return _text(value)
    if kind == _ARRAY:
        inner = _STRING if isinstance(value[0], str) else _I32
        parts = b"".join(_value(inner, each) for each in value)
        return struct.pack("<IQ", inner, len(value)) + parts
    return struct.pack({_U32: "<I", _I32: "<i", _F32: "<f", _BOOL: "<?"}[kind], value)


def _facts(size: Size) -> Iterator[tuple[str, int, Any]]:
    yield "general.architecture", _STRING, "llama"
    yield "general.name", _STRING, "tiny-random"
    yield "general.file_type", _U32, 1
    yield "llama.context_length", _U32, size.context
    yield "llama.embedding_length", _U32, size.hidden
    yield "llama.block_count", _U32, size.layers
    yield "llama.feed_forward_length", _U32, size.inner
    yield "llama.attention.head_count", _U32, size.heads
    yield "llama.attention.head_count_kv", _U32, size.heads
    yield "llama.attention.layer_norm_rms_epsilon", _F32, 1e-5
    yield "llama.rope.dimension_count", _U32, 64
    yield "llama.vocab_size", _U32, len(tokens())
    yield "tokenizer.ggml.model", _STRING, "gpt2"
    yield "tokenizer.ggml.pre", _STRING, "default"
    yield "tokenizer.ggml.tokens", _ARRAY, tokens()
    yield "tokenizer.ggml.token_type", _ARRAY, [2, 3, 3, *([1] * 95)]
    # llama.cpp wants the key to be there; this merge makes no token, so that it is never used.
    yield "tokenizer.ggml.merges", _ARRAY, ["a b"]
    yield "tokenizer.ggml.bos_token_id", _U32, 1
    yield "tokenizer.ggml.eos_token_id", _U32, 2
    yield "tokenizer.ggml.unknown_token_id", _U32, 0
    yield "tokenizer.ggml.add_bos_token", _BOOL, True
    yield "tokenizer.chat_template", _STRING, CHAT


def _gguf_shapes(size: Size) -> Iterator[tuple[str, tuple[int, ...]]]:
    hidden, inner, vocabulary = size.hidden, size.inner, len(tokens())
    yield "token_embd.weight", (vocabulary, hidden)
    yield "output_norm.weight", (hidden,)
    yield "output.weight", (vocabulary, hidden)
    for at in range(size.layers):
        for norm in ("attn_norm", "ffn_norm"):
            yield f"blk.{at}.{norm}.weight", (hidden,)
        for part in ("attn_q", "attn_k", "attn_v", "attn_output"):
            yield f"blk.{at}.{part}.weight", (hidden, hidden)
        for part in ("ffn_gate", "ffn_up"):
            yield f"blk.{at}.{part}.weight", (inner, hidden)
        yield f"blk.{at}.ffn_down.weight", (hidden, inner)
