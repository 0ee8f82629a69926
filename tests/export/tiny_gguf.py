"""Random models of llama.cpp's file format that are as small as they can be, with a vocabulary of bytes."""

from __future__ import annotations

from pathlib import Path

import numpy as np

EMBEDDING, FEED_FORWARD, HEADS, VOCABULARY = 64, 96, 4, 259


def write_llama(path: Path, layers: int = 6, experts: int = 0, seed: int = 0) -> Path:
    """Write a Llama, or with experts a Mixtral, of random weights; two of its experts work for each token."""
    import gguf

    rng = np.random.default_rng(seed)
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_context_length(128)
    writer.add_embedding_length(EMBEDDING)
    writer.add_block_count(layers)
    writer.add_feed_forward_length(FEED_FORWARD)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(HEADS)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_dimension_count(EMBEDDING // HEADS)
    writer.add_vocab_size(VOCABULARY)
    if experts:
        writer.add_expert_count(experts)
        writer.add_expert_used_count(2)
    bytes_ = [f"<0x{k:02X}>".encode() for k in range(256)]
    kinds = [gguf.TokenType.UNKNOWN, gguf.TokenType.CONTROL, gguf.TokenType.CONTROL, *[gguf.TokenType.BYTE] * 256]
    writer.add_tokenizer_model("llama")
    writer.add_token_list([b"<unk>", b"<s>", b"</s>", *bytes_])
    writer.add_token_scores([0.0] * VOCABULARY)
    writer.add_token_types(kinds)
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)

    def tensor(name: str, *shape: int) -> None:
        scale = 1.0 if len(shape) == 1 else shape[-1] ** -0.5
        values = np.ones(shape) if len(shape) == 1 else rng.normal(size=shape) * scale
        writer.add_tensor(f"{name}.weight", values.astype(np.float32))

    tensor("token_embd", VOCABULARY, EMBEDDING)
    for k in range(layers):
        for norm in ("attn_norm", "ffn_norm"):
            tensor(f"blk.{k}.{norm}", EMBEDDING)
        for part in ("attn_q", "attn_k", "attn_v", "attn_output"):
            tensor(f"blk.{k}.{part}", EMBEDDING, EMBEDDING)
        of = (experts,) if experts else ()
        suffix = "_exps" if experts else ""
        if experts:
            tensor(f"blk.{k}.ffn_gate_inp", experts, EMBEDDING)
        for part in ("ffn_gate", "ffn_up"):
            tensor(f"blk.{k}.{part}{suffix}", *of, FEED_FORWARD, EMBEDDING)
        tensor(f"blk.{k}.ffn_down{suffix}", *of, EMBEDDING, FEED_FORWARD)
    tensor("output_norm", EMBEDDING)
    tensor("output", VOCABULARY, EMBEDDING)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path
