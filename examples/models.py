"""Networks to plan with the ``py:`` spec: functions that return (module, example inputs), built on the meta device.

No weights are downloaded or even allocated: a configuration says enough about shapes to place a network. Run for
example ``placewright plan py:examples.models:bert_large --cluster cluster.yaml`` in the repository's root.
"""

from __future__ import annotations

from typing import Any

import torch
import transformers

from placewright import networks

Example = tuple[torch.nn.Module, dict[str, torch.Tensor]]


def _on_meta(cls: Any, config: Any, dtype: torch.dtype = torch.float32) -> torch.nn.Module:
    if cls._supports_sdpa:
        config._attn_implementation = "sdpa"
    with torch.device("meta"):
        module: torch.nn.Module = cls(config).to(dtype).eval()
    return module


def _tokens(batch: int, length: int) -> torch.Tensor:
    return torch.zeros(batch, length, dtype=torch.int64, device="meta")


def bert_large(batch: int = 1, length: int = 512) -> Example:
    """BERT-large (335 M parameters), the whole encoder with its pooler."""
    config = transformers.BertConfig(
        hidden_size=1024, num_hidden_layers=24, num_attention_heads=16, intermediate_size=4096
    )
    return _on_meta(transformers.BertModel, config), {"input_ids": _tokens(batch, length)}


def gpt2(batch: int = 1, length: int = 1024) -> Example:
    """GPT-2, the small one (124 M parameters), reading a prompt."""
    config = transformers.GPT2Config(use_cache=False)
    return _on_meta(transformers.GPT2LMHeadModel, config), {"input_ids": _tokens(batch, length)}


def gpt2_xl(batch: int = 1, length: int = 1024) -> Example:
    """GPT-2 XL (1.56 B parameters) reading a prompt."""
    config = transformers.GPT2Config(n_embd=1600, n_layer=48, n_head=25, use_cache=False)
    return _on_meta(transformers.GPT2LMHeadModel, config), {"input_ids": _tokens(batch, length)}


def llama_7b(batch: int = 1, length: int = 2048) -> Example:
    """Llama 7B in bf16 reading a prompt."""
    config = transformers.LlamaConfig(use_cache=False, max_position_embeddings=2048)
    return _on_meta(transformers.LlamaForCausalLM, config, torch.bfloat16), {"input_ids": _tokens(batch, length)}


def llama_13b(batch: int = 1, length: int = 2048) -> Example:
    """Llama 13B in bf16 reading a prompt."""
    config = transformers.LlamaConfig(
        hidden_size=5120,
        intermediate_size=13824,
        num_hidden_layers=40,
        num_attention_heads=40,
        use_cache=False,
        max_position_embeddings=2048,
    )
    return _on_meta(transformers.LlamaForCausalLM, config, torch.bfloat16), {"input_ids": _tokens(batch, length)}


def mixtral_8x7b(batch: int = 1, length: int = 2048) -> Example:
    """Mixtral 8x7B (46.7 B parameters) in bf16; experts as grouped products of the tokens that are theirs."""
    config = transformers.MixtralConfig(use_cache=False, max_position_embeddings=4096)
    config._experts_implementation = "grouped_mm"
    return _on_meta(transformers.MixtralForCausalLM, config, torch.bfloat16), {"input_ids": _tokens(batch, length)}


def t5_large(batch: int = 1, length: int = 512) -> Example:
    """T5-large (738 M parameters): encoder, decoder and language-model head."""
    config = transformers.T5Config(d_model=1024, d_kv=64, d_ff=4096, num_layers=24, num_heads=16, use_cache=False)
    module = _on_meta(transformers.T5ForConditionalGeneration, config)
    return module, {"input_ids": _tokens(batch, length), "decoder_input_ids": _tokens(batch, length)}


def whisper_small(batch: int = 1, length: int = 448) -> Example:
    """Whisper-small (242 M parameters): 30 s of sound in, a whole transcript decoded at once."""
    config = transformers.WhisperConfig(
        d_model=768,
        encoder_layers=12,
        decoder_layers=12,
        encoder_attention_heads=12,
        decoder_attention_heads=12,
        encoder_ffn_dim=3072,
        decoder_ffn_dim=3072,
        vocab_size=51865,
        use_cache=False,
    )
    sound = torch.zeros(batch, 80, 3000, device="meta")
    module = _on_meta(transformers.WhisperForConditionalGeneration, config)
    return module, {"input_features": sound, "decoder_input_ids": _tokens(batch, length)}


def resnet_50(batch: int = 1) -> Example:
    """ResNet-50 (25.6 M parameters) on 224 x 224 pixels."""
    module = _on_meta(transformers.ResNetForImageClassification, transformers.ResNetConfig(num_labels=1000))
    return module, {"pixel_values": torch.zeros(batch, 3, 224, 224, device="meta")}


def swin_v2_large(batch: int = 1) -> Example:
    """Swin-v2-large (229 M parameters with the head for 21,841 classes) on 192 x 192 pixels, window 12."""
    config = transformers.Swinv2Config(
        image_size=192, embed_dim=192, depths=[2, 2, 18, 2], num_heads=[6, 12, 24, 48], window_size=12, num_labels=21841
    )
    module = _on_meta(transformers.Swinv2ForImageClassification, config)
    return module, {"pixel_values": torch.zeros(batch, 3, 192, 192, device="meta")}


def vit_large(batch: int = 1) -> Example:
    """ViT-large with patches of 16 (304 M parameters) on 224 x 224 pixels."""
    config = transformers.ViTConfig(
        hidden_size=1024, num_hidden_layers=24, num_attention_heads=16, intermediate_size=4096, num_labels=1000
    )
    return _on_meta(transformers.ViTForImageClassification, config), {
        "pixel_values": torch.zeros(batch, 3, 224, 224, device="meta")
    }


def inception_v4(batch: int = 1) -> Example:
    """Inception-v4 (42.7 M parameters) on 299 x 299 pixels; needs pytorchcv (install it with ``--no-deps``)."""
    from pytorchcv.models.inceptionv4 import inceptionv4

    with torch.device("meta"):
        module: torch.nn.Module = inceptionv4().eval()
    return module, {"x": torch.zeros(batch, 3, 299, 299, device="meta")}


def sd_unet(batch: int = 2) -> Example:
    """U-Net of Stable Diffusion 1.5 (860 M parameters) on two 64 x 64 latents (guided); needs diffusers."""
    from diffusers import UNet2DConditionModel

    with torch.device("meta"):
        module: torch.nn.Module = UNet2DConditionModel(sample_size=64, cross_attention_dim=768).eval()
    return module, {
        "sample": torch.zeros(batch, 4, 64, 64, device="meta"),
        "timestep": torch.zeros(batch, dtype=torch.int64, device="meta"),
        "encoder_hidden_states": torch.zeros(batch, 77, 768, device="meta"),
    }


def randomly_wired(batch: int = 1, seed: int = 0) -> Example:
    """Randomly wired network of Watts-Strogatz stages, WS(4, 0.75) with 32 nodes and 78 channels, on 448 x 448 pixels.

    Of Xie et al. 2019, small regime, at twice their height and width: the stages read 112 x 112 pixels.
    """
    return networks.randomly_wired("ws", 32, 78, seed, batch=batch, pixels=448, device="meta")


def randomly_wired_er(batch: int = 1, seed: int = 0) -> Example:
    """As :func:`randomly_wired`, of Erdos-Renyi stages: ER(0.2)."""
    return networks.randomly_wired("er", 32, 78, seed, batch=batch, pixels=448, device="meta")


def randomly_wired_ba(batch: int = 1, seed: int = 0) -> Example:
    """As :func:`randomly_wired`, of Barabasi-Albert stages: BA(5)."""
    return networks.randomly_wired("ba", 32, 78, seed, batch=batch, pixels=448, device="meta")
