"""Transformers as ONNX files, exported by torch: what the ONNX package has no small networks of."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import torch
import transformers

NAMES = ("bert_4", "gpt2_6", "vit_base")


class _Positional(torch.nn.Module):
    """A network with one argument and one result, its mask given: that is what can be exported."""

    def __init__(self, module: Any, mask: torch.Tensor | None) -> None:
        super().__init__()
        self.module, self.mask = module, mask

    def forward(self, given: torch.Tensor) -> torch.Tensor:
        more = {} if self.mask is None else {"attention_mask": self.mask}
        made: torch.Tensor = self.module(given, **more)[0]
        return made


def exported(name: str, folder: Path) -> Path:
    """Export one of :data:`NAMES` with random weights, unless that is done."""
    path = folder / f"{name}.onnx"
    if path.is_file():
        return path
    tokens = torch.zeros(1, 128, dtype=torch.int64)
    open_mask = torch.zeros(1, 1, 128, 128)
    if name == "bert_4":
        config: Any = transformers.BertConfig(
            hidden_size=512, num_hidden_layers=4, num_attention_heads=8, intermediate_size=2048
        )
        module, given, mask = _made(transformers.BertModel, config), tokens, open_mask
    elif name == "gpt2_6":
        config = transformers.GPT2Config(n_layer=6, vocab_size=8192, use_cache=False)
        module, given, mask = _made(transformers.GPT2Model, config), tokens, open_mask
    else:
        module, given, mask = _made(transformers.ViTModel, transformers.ViTConfig()), torch.zeros(1, 3, 224, 224), None
    folder.mkdir(parents=True, exist_ok=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(_Positional(module, mask), (given,), path, dynamo=False, opset_version=17)
    return path


def _made(cls: Any, config: Any) -> torch.nn.Module:
    config._attn_implementation = "eager"
    module: torch.nn.Module = cls(config).eval()
    return module
