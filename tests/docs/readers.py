"""What the pages take a reader to have: networks, files and clusters, small ones under the names that pages use."""

from __future__ import annotations

import importlib.util
import json
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.docs.blocks import ROOT, Block

MODELS = """
import torch
import transformers


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.ModuleList(torch.nn.Linear(16, 16) for _ in range(4))

    def forward(self, x):
        for layer in self.layers:
            x = torch.tanh(layer(x))
        return x, (x * x).mean()


class Branches(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.stem, self.head = torch.nn.Conv2d(3, 8, 3), torch.nn.Linear(16, 5)
        self.left, self.right = torch.nn.Conv2d(8, 8, 1), torch.nn.Conv2d(8, 8, 3, padding=1)

    def forward(self, x):
        x = torch.relu(self.stem(x))
        return self.head(torch.cat([self.left(x), self.right(x)], 1).mean((2, 3)))


def net():
    torch.manual_seed(0)
    return Net(), (torch.randn(2, 16),)


def loss(output, position, micro_batch):
    return (output * output).mean()


def inception_v4():
    return Branches().eval(), (torch.randn(1, 3, 16, 16),)


def built(cls, config):
    with torch.device("meta"):
        return cls(config).eval(), {"input_ids": torch.zeros(1, 8, dtype=torch.int64)}


def decoder():
    sizes = {"hidden_size": 256, "intermediate_size": 512, "num_hidden_layers": 2, "num_attention_heads": 4}
    return built(transformers.LlamaForCausalLM, transformers.LlamaConfig(vocab_size=512, use_cache=False, **sizes))


llama_7b = decoder


def bert_large():
    sizes = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2}
    return built(transformers.BertModel, transformers.BertConfig(vocab_size=64, **sizes))


def gpt2_xl():
    config = transformers.GPT2Config(n_embd=32, n_layer=2, n_head=2, vocab_size=64, use_cache=False)
    return built(transformers.GPT2LMHeadModel, config)
"""
"""A module of the reader's; also in place of ``examples.models``, whose networks take long to capture."""

MODULES = ("my_models", "nets", "uneven", "examples", "examples.models")

GPUS = """
devices:
  - {name: "gpu[0-1]", memory: 24 GiB, flops: {fp32: 10 TFLOP/s, fp16: 40 TFLOP/s}, memory_bandwidth: 900 GB/s}
  - {name: cpu, kind: cpu, memory: 64 GiB, flops: {fp32: 1 TFLOP/s}, memory_bandwidth: 50 GB/s}
links:
  - {class: same-host, bandwidth: 12 GB/s, latency: 10 us}
"""

CPUS = """
devices:
  - {{name: "cpu[0-1]", kind: cpu, memory: {memory}, flops: {{fp32: 10 GFLOP/s}}, memory_bandwidth: 10 GB/s}}
links:
  - {{class: same-host, bandwidth: 2 GB/s, latency: 20 us}}
"""
"""Neither holds the network alone, so that each runs a part of it."""

CLUSTERS = {
    "docs/execution.md": CPUS.format(memory="4 KiB"),
    "docs/generation.md": CPUS.format(memory="9 MiB"),
    "docs/serving.md": CPUS.format(memory="9 MiB"),
    "docs/report.md": CPUS.format(memory="64 MiB"),
}
"""Page -> its ``box.yaml``, where that is not of GPUs."""

OWN_FILES = {
    ("docs/tutorials/training.md", "python"): "uneven.py",
    ("docs/tutorials/training.md", "yaml"): "here.yaml",
}
"""A block that a page asks the reader to save, by its kind -> under which name."""

EARLIER = {
    r"report\.md placewright run": "plan model.onnx --cluster box.yaml --budget 0 -o ran.json",
    r"serving\.md placewright serve plan\.json$": "plan model.onnx --cluster box.yaml --budget 0 -o plan.json",
    r"serving\.md placewright serve .*--generate": (
        "plan hf:llama-3b --cluster box.yaml --objective token-latency --context 4k --budget 0 -o plan.json"
    ),
    r"device\.md placewright calibrate": "probe -o here.yaml",
}
"""Page and beginning of a command -> what was typed before it."""

NAMES = {
    "docs/report.md": {"PLAN": "ran.json"},
    "docs/exporters.md": {"MODEL": "py:my_models:decoder", "C": "box.yaml"},
    "docs/language-models.md": {"hf:DIR": "hf:llama-3b"},
}
"""Page -> what a placeholder stands for."""

LLAMA: dict[str, Any] = {
    "model_type": "llama",
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": 256,
    "intermediate_size": 256,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 2304,
    "max_position_embeddings": 32768,
    "bos_token_id": None,
    "eos_token_id": None,
    "pad_token_id": None,
    "dtype": "float32",
}
"""``llama-3b``: two layers of 1.5 MiB, table and head of 2.25 MiB each, as it has the tokens that pages use."""


def has(*packages: str) -> bool:
    """Whether all of these can be imported."""
    return all(importlib.util.find_spec(name) is not None for name in packages)


def lay(page: str, blocks: list[Block], folder: Path) -> None:
    """Put what a page takes for granted into a folder, as far as the packages that it needs are installed."""
    examples = folder / "examples"
    examples.mkdir()
    for path in (ROOT / "examples").iterdir():
        if path.name not in ("models.py", "__pycache__"):
            (examples / path.name).symlink_to(path)
    (folder / "box.yaml").write_text(CLUSTERS.get(page, GPUS))
    for block in blocks:
        if (page, block.kind) in OWN_FILES:
            (folder / OWN_FILES[page, block.kind]).write_text(block.text)
    _workloads(folder)
    if has("torch", "transformers"):
        for name in ("my_models.py", "nets.py", "examples/models.py"):
            (folder / name).write_text(MODELS)
    if has("onnx", "onnxruntime"):
        _onnx(page, folder / "model.onnx")
    text = " ".join(block.text for block in blocks)
    if page.endswith("exporters.md"):
        (folder / "map.json").write_text(json.dumps({"device_map": {"": "cpu"}}))
        (folder / "part.json").write_text(json.dumps({"model.embed_tokens": "cpu"}))
        _llama(folder / "MODEL")
    if "hf:llama-3b" in text or "hf:DIR" in text:
        _llama(folder / "llama-3b")
    if "model.gguf" in text:
        from tests.language.test_files import HEAD, gguf, llama_tensors

        head = {**HEAD, "llama.context_length": 4096}
        (folder / "model.gguf").write_bytes(gguf(head, llama_tensors()))


def _workloads(folder: Path) -> None:
    """Lay a workload of dnn-partitioning with a split, a profile of PipeDream and a sheet of Moirai."""
    from tests.io.test_partitioning_file import edge, node
    from tests.io.test_pipedream_file import FORK

    nodes, edges = [node(k, name=f"node{k}") for k in (1, 2, 3)], [edge(1, 2), edge(2, 3)]
    workload = {"maxSizePerFPGA": 250.0, "maxFPGAs": 2, "maxCPUs": 1, "nodes": nodes, "edges": edges}
    (folder / "workload.json").write_text(json.dumps(workload))
    split = {"cpus": [{"nodes": []}], "fpgas": [{"nodes": [1, 2]}, {"nodes": [3]}]}
    (folder / "split.json").write_text(json.dumps(split))
    (folder / "vgg16.txt").write_text(FORK)
    if has("xlwt"):
        from tests.io.moirai_sheets import sheet

        (folder / "GoogLeNet.xls").write_bytes(sheet())


def _onnx(page: str, path: Path) -> None:
    import onnx

    from tests.execute.small_onnx import LIGHT, branching

    if page.endswith("edge.md"):
        shutil.copy(LIGHT / "light_inception_v1.onnx", path)
    else:
        onnx.save(branching(), path)


def _llama(folder: Path) -> None:
    """Lay a decoder's configuration, and, where they can be written, its weights and a tokenizer of its words."""
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(LLAMA))
    if not has("torch", "transformers"):
        return
    import torch
    import transformers
    from tokenizers import Tokenizer, models, pre_tokenizers

    torch.manual_seed(0)
    transformers.LlamaForCausalLM(transformers.LlamaConfig(**LLAMA)).save_pretrained(folder)
    words = Tokenizer(models.WordLevel({f"w{k}": k for k in range(2304)} | {"The": 0, "quick": 1, "brown": 2}, "w3"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    words.save(str(folder / "tokenizer.json"))


@contextmanager
def own_modules() -> Iterator[None]:
    """Modules of the reader's are those of this folder, and of no other test's."""
    kept = {name: sys.modules.pop(name) for name in MODULES if name in sys.modules}
    yield
    for name in MODULES:
        sys.modules.pop(name, None)
    sys.modules.update(kept)
