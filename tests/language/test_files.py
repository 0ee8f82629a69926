"""True sizes from safetensors heads and GGUF files: written byte by byte here, or by the packages of these formats."""

from __future__ import annotations

import json
import random
import struct

import pytest

from placewright.errors import InvalidInput
from placewright.language import read_language_model
from placewright.language.configuration import read_configuration
from placewright.language.families import FAMILIES
from placewright.language.gguf_file import BLOCKS, read_gguf
from placewright.language.safetensors_head import safetensors_sizes
from tests.language.small_configs import TEXT

LLAMA = {**TEXT, "model_type": "llama", "tie_word_embeddings": False, "max_position_embeddings": 256}


def text(value: str) -> bytes:
    return struct.pack("<Q", len(value)) + value.encode()


def gguf(values: dict[str, object], tensors: dict[str, tuple[tuple[int, ...], int]]) -> bytes:
    """A file's head, as docs/gguf.md of ggml describes it; room for the weights follows as zeros."""
    out = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(values))
    for key, value in values.items():
        out += text(key)
        if isinstance(value, str):
            out += struct.pack("<I", 8) + text(value)
        elif isinstance(value, list) and value and isinstance(value[0], str):
            out += struct.pack("<IIQ", 9, 8, len(value)) + b"".join(map(text, value))
        elif isinstance(value, list):
            out += struct.pack("<IIQ", 9, 5, len(value)) + struct.pack(f"<{len(value)}i", *value)
        else:
            out += struct.pack("<II", 4, value)
    for name, (shape, kind) in tensors.items():
        out += text(name) + struct.pack(f"<I{len(shape)}Q", len(shape), *shape) + struct.pack("<IQ", kind, 0)
    return out + bytes(400_000)


HEAD = {
    "general.architecture": "llama",
    "llama.block_count": 2,
    "llama.embedding_length": 64,
    "llama.feed_forward_length": 96,
    "llama.attention.head_count": 4,
    "llama.attention.head_count_kv": 2,
    "llama.context_length": 256,
    "tokenizer.ggml.tokens": ["a", "b"],
}


def llama_tensors(kind: int = 8) -> dict[str, tuple[tuple[int, ...], int]]:
    """Two layers, products in q8_0 blocks of 32 numbers and 34 bytes, norms in fp32."""
    found = {
        "token_embd.weight": ((64, 128), kind),
        "output_norm.weight": ((64,), 0),
        "output.weight": ((64, 128), kind),
    }
    for k in range(2):
        found |= {f"blk.{k}.{n}.weight": ((64,), 0) for n in ("attn_norm", "ffn_norm")}
        found |= {f"blk.{k}.{n}.weight": ((64, w), kind) for n, w in (("attn_q", 64), ("attn_k", 32), ("attn_v", 32))}
        found |= {
            f"blk.{k}.{n}.weight": ((64, w), kind) for n, w in (("attn_output", 64), ("ffn_up", 96), ("ffn_gate", 96))
        }
        found[f"blk.{k}.ffn_down.weight"] = (96, 64), kind
    return found


def test_a_gguf_file_is_a_model_with_its_true_bytes(tmp_path):
    """Every tensor's bytes are those of its blocks, on the module of transformers that it is."""
    file = tmp_path / "tiny.gguf"
    file.write_bytes(gguf(HEAD, llama_tensors()))
    found = read_language_model(str(file))
    sizes = found.model.weight_bytes
    assert sizes["model.layers.1.mlp.down_proj"] == 96 * 64 // 32 * 34
    assert sizes["model.layers.0.input_layernorm"] == 64 * 4
    assert sizes["lm_head"] == 64 * 128 // 32 * 34
    assert not found.notes and found.source.format == "gguf" and found.model.longest == 256
    assert set(sizes) == {p.name for p in found.model.parts if p.parameters}


def test_a_gguf_file_without_output_is_tied_and_strange_tensors_are_told(tmp_path):
    """The embedding is the head; a tensor of no operator is left out with a note, and so is what is missing."""
    tensors = {k: t for k, t in llama_tensors().items() if k not in ("output.weight", "blk.1.ffn_up.weight")}
    file = tmp_path / "tiny.gguf"
    file.write_bytes(gguf(HEAD, {**tensors, "v.patch_embd.weight": ((64, 128), 1)}))
    found = read_language_model(f"hf:{file}")
    assert found.model.parts[-1].tied == "model.embed_tokens"
    assert found.notes == (
        "left out, as no operator has them: 1 tensors of 16 KiB (v.patch_embd.weight)",
        "not in the files, so taken by their shapes: weights of 1 operators (model.layers.1.mlp.up_proj)",
    )


def test_a_gguf_file_in_parts_is_read_whole(tmp_path):
    """The first part names how many there are; the tensors of all belong to the model."""
    names = list(llama_tensors().items())
    for k, part in enumerate((names[:5], names[5:])):
        (tmp_path / f"m-{k + 1:05}-of-00002.gguf").write_bytes(gguf(HEAD if k == 0 else {}, dict(part)))
    found = read_language_model(str(tmp_path / "m-00001-of-00002.gguf"))
    assert not found.notes and len(found.model.weight_bytes) == len(names)


def test_experts_of_a_gguf_file_share_the_bytes_of_their_tensors(tmp_path):
    """Mixtral's three tensors of four experts: each expert has a quarter."""
    tensors = {k: t for k, t in llama_tensors().items() if "ffn_u" not in k and "ffn_g" not in k and "ffn_d" not in k}
    for k in range(2):
        tensors[f"blk.{k}.ffn_gate_inp.weight"] = (64, 4), 0
        tensors |= {f"blk.{k}.ffn_{n}_exps.weight": ((64, 96, 4), 8) for n in ("gate", "up")}
        tensors[f"blk.{k}.ffn_down_exps.weight"] = (96, 64, 4), 8
    file = tmp_path / "moe.gguf"
    file.write_bytes(gguf({**HEAD, "llama.expert_count": 4, "llama.expert_used_count": 2}, tensors))
    found = read_language_model(str(file))
    assert not found.notes
    assert found.model.weight_bytes["model.layers.1.mlp.experts.3"] == 3 * 64 * 96 // 32 * 34
    assert found.model.weight_bytes["model.layers.1.mlp.gate"] == 64 * 4 * 4


def test_blocks_and_files_are_those_of_the_package_gguf(tmp_path):
    """Block sizes equal its table; a file that it writes is read with the same tensors."""
    package = pytest.importorskip("gguf")
    np = pytest.importorskip("numpy")
    assert {int(k): v for k, v in package.GGML_QUANT_SIZES.items()} == dict(BLOCKS)
    file = tmp_path / "written.gguf"
    writer = package.GGUFWriter(file, "qwen2")
    writer.add_block_count(3)
    writer.add_array("tokenizer.ggml.scores", [1.0, 2.0])
    writer.add_tensor("token_embd.weight", np.zeros((10, 32), dtype=np.float16))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    head = read_gguf(file)
    assert head.values["general.architecture"] == "qwen2" and head.values["qwen2.block_count"] == 3
    assert head.values["tokenizer.ggml.scores"] == [1.0, 2.0]
    assert head.tensors == {"token_embd.weight": 640} and head.shapes == {"token_embd.weight": (32, 10)}


def test_every_family_of_gguf_names_modules_that_the_family_has():
    """What a tensor is called in transformers is a part of the model, for each family."""
    from placewright.language.gguf_model import KINDS, module_names

    for kind in KINDS.values():
        family = FAMILIES[kind]
        names = module_names(family)
        assert names["token_embd"] == family.embed and names["attn_output"].startswith(f"{family.attention}.")


def test_broken_gguf_files_are_refused_in_one_line(tmp_path, monkeypatch):
    """Cut off anywhere, or with a few bytes changed: either read, or refused with the reason, never anything else."""
    monkeypatch.setattr("placewright.language.configuration._defaults_of", lambda kind: {})
    whole = gguf(HEAD, llama_tensors())
    length = len(whole) - 400_000
    rng = random.Random(0)
    file = tmp_path / "broken.gguf"
    refused = 0
    for k in range(120):
        data = bytearray(whole[: rng.randrange(length)] if k % 2 else whole)
        if k % 2 == 0:
            for _ in range(rng.randint(1, 4)):
                data[rng.randrange(length)] = rng.randrange(256)
        file.write_bytes(data)
        try:
            read_language_model(str(file))
        except InvalidInput as error:
            refused += 1
            assert "\n" not in str(error)
    assert refused > 60


def safetensors(tensors: dict[str, int]) -> bytes:
    at, head = 0, {}
    for name, size in tensors.items():
        head[name] = {"dtype": "U8", "shape": [size], "data_offsets": [at, at + size]}
        at += size
    encoded = json.dumps({"__metadata__": {"format": "pt"}, **head}).encode()
    return struct.pack("<Q", len(encoded)) + encoded + bytes(at)


def folder_of(tmp_path, shards: list[dict[str, int]], config=LLAMA):
    (tmp_path / "config.json").write_text(json.dumps(config))
    for k, tensors in enumerate(shards):
        (tmp_path / f"model-{k}.safetensors").write_bytes(safetensors(tensors))
    listed = {name: f"model-{k}.safetensors" for k, tensors in enumerate(shards) for name in tensors}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": listed}))
    return tmp_path


def test_a_folder_of_shards_gives_true_bytes(tmp_path):
    """A quantised projection has the bytes of all its tensors; what isn't in the files goes by its shape."""
    folder = folder_of(
        tmp_path,
        [
            {"model.layers.0.self_attn.q_proj.qweight": 500, "model.layers.0.self_attn.q_proj.scales": 40},
            {"model.layers.0.self_attn.rotary_emb.inv_freq": 7, "model.norm.weight": 128, "other.weight": 9},
        ],
    )
    found = read_language_model(f"hf:{folder}")
    assert found.model.weight_bytes == {
        "model.layers.0.self_attn.q_proj": 540,
        "model.layers.0.input_layernorm": 7,
        "model.norm": 128,
    }
    assert found.notes[0] == "left out, as no operator has them: 1 tensors of 9 B (other.weight)"


def test_names_of_older_checkpoints_are_known(tmp_path):
    """Mixtral's experts by their old names, one by one."""
    config = {**LLAMA, "model_type": "mixtral", "num_local_experts": 4, "num_experts_per_tok": 2}
    old = "model.layers.2.block_sparse_moe"
    folder = folder_of(tmp_path, [{f"{old}.experts.3.w1.weight": 100, f"{old}.gate.weight": 10}], config)
    sizes = read_language_model(f"hf:{folder}").model.weight_bytes
    assert sizes == {"model.layers.2.mlp.experts.3": 100, "model.layers.2.mlp.gate": 10}


def test_the_head_of_older_gpt_neox_checkpoints_is_known(tmp_path):
    """Transformers called it ``embed_out``, as the files of Pythia do."""
    folder = folder_of(tmp_path, [{"embed_out.weight": 100}], {**LLAMA, "model_type": "gpt_neox"})
    assert read_language_model(f"hf:{folder}").model.weight_bytes == {"lm_head": 100}


def test_files_that_the_package_writes_are_read(tmp_path):
    """Sizes equal those of the tensors that were written."""
    torch = pytest.importorskip("torch")
    save = pytest.importorskip("safetensors.torch").save_file
    save({"a.weight": torch.zeros(3, 5), "b.weight": torch.zeros(7, dtype=torch.bfloat16)}, tmp_path / "x.safetensors")
    assert safetensors_sizes(tmp_path) == {"a.weight": 60, "b.weight": 14}


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "truncated, or no safetensors file"),
        (struct.pack("<Q", 2**40), "says that its head has 1099511627776 bytes"),
        (struct.pack("<Q", 2) + b"[]", "xpected `object`"),
        (
            struct.pack("<Q", 49) + b'{"a":{"dtype":"U8","shape":[9],"data_offsets":[0,9]}}'[:49],
            "Input data was truncated",
        ),
        (
            struct.pack("<Q", 57) + b'{"a":{"data_offsets":[0,9]},"b":{"data_offsets":[8,9]}}  ' + bytes(9),
            "tensors 'a' and 'b' overlap",
        ),
        (struct.pack("<Q", 11) + b'{"a":[1,2]}', "is at None, which is not in the file"),
    ],
)
def test_broken_safetensors_are_refused(tmp_path, data, said):
    """Each with what is wrong, before anything is read for it."""
    (tmp_path / "x.safetensors").write_bytes(data)
    with pytest.raises(InvalidInput) as error:
        safetensors_sizes(tmp_path)
    assert said in str(error.value)


def test_an_index_cannot_leave_its_folder(tmp_path):
    """A name with a path in it is refused."""
    (tmp_path / "model.safetensors.index.json").write_text('{"weight_map": {"a": "../secret"}}')
    with pytest.raises(InvalidInput, match="which is no file in its folder"):
        safetensors_sizes(tmp_path)


def test_a_configuration_that_is_none_is_refused(tmp_path):
    """A folder without one, a list, and a model that is not there."""
    with pytest.raises(InvalidInput, match="can't be read"):
        read_configuration(tmp_path)
    (tmp_path / "config.json").write_text("[1]")
    with pytest.raises(InvalidInput, match="xpected"):
        read_configuration(tmp_path)
    with pytest.raises(InvalidInput, match="Nothing is downloaded"):
        read_language_model("hf:meta-llama/Llama-3.1-8B")
