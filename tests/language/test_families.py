"""Parts made from a configuration, compared with the module that transformers builds from it."""

from __future__ import annotations

import json

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from placewright.language import model_of  # noqa: E402
from tests.language.small_configs import ALL, DECODERS  # noqa: E402


def built(name):
    """The configuration as a dictionary, and the module on meta."""
    config_class, model_class, arguments = ALL[name]
    config = getattr(transformers, config_class)(**arguments)
    with torch.device("meta"):
        module = getattr(transformers, model_class)(config)
    return json.loads(json.dumps(config.to_dict(), default=str)), module


@pytest.mark.parametrize("name", ALL)
def test_parameters_are_those_of_the_module_one_by_one(name):
    """Each part has as many weights as the module of its name; all together as many as the whole."""
    given, module = built(name)
    model = model_of(given)
    own = {p.name: p.parameters for p in model.parts}
    experts = {p.name.rpartition(".")[0] for p in model.parts if p.share is not None}
    held: dict[str, int] = {}
    for path, parameter in module.named_parameters():
        at = path
        while at and at not in own and at not in experts:
            at = at.rpartition(".")[0]
        held[at] = held.get(at, 0) + parameter.numel()
    for path in experts:  # all experts of a layer are one parameter there
        own[path] = sum(n for name, n in own.items() if name.startswith(f"{path}."))
    assert {name: own.get(name) for name in held if name} == {name: n for name, n in held.items() if name}
    assert model.parameters == sum(p.numel() for p in module.parameters())


@pytest.mark.parametrize("name", ["llama", "gemma3", "mixtral", "deepseek_v3", "gpt2", "phi3"])
def test_a_dtype_and_a_missing_number_are_read_as_transformers_does(name):
    """The dtype of a configuration is that of its weights; a number that it lacks is transformers' default."""
    given, _ = built(name)
    assert model_of({**given, "dtype": "bfloat16"}).dtype == "bf16"
    reach = {"gpt2": "n_positions"}.get(name, "max_position_embeddings")
    assert model_of(given).longest == given[reach]


@pytest.mark.parametrize("name", ["llama", "qwen2", "gemma3", "gpt_oss", "deepseek_v3"])
def test_the_cache_is_that_of_a_model_that_ran(name):
    """After a prompt of 9 tokens of 2 sequences, transformers' cache holds the bytes that the operators are to keep."""
    from placewright.language import Formats, Step, step_graph

    config_class, model_class, arguments = DECODERS[name]
    arguments = {**arguments, **({"sliding_window": 5} if name in ("gemma3", "gpt_oss") else {})}
    config = getattr(transformers, config_class)(**arguments)
    torch.manual_seed(0)
    module = getattr(transformers, model_class)(config).eval()
    with torch.no_grad():
        cache = module(torch.ones(2, 9, dtype=torch.int64), use_cache=True).past_key_values
    held = [sum(t.nbytes for t in (layer.keys, layer.values)) for layer in cache.layers]
    model = model_of(json.loads(json.dumps(config.to_dict(), default=str)))
    graph = step_graph(model, Step(2, {"text": 9, "last": 1}, 9), Formats("fp32"))
    ours = [v.kv_cache_bytes for v in graph.operators if v.kind == "attention"]
    assert len(ours) == len(held)
    for mine, theirs, layer in zip(ours, held, cache.layers, strict=True):
        # A window of w keeps w - 1 tokens between steps, and has room for the next one.
        assert mine in (theirs, theirs * 5 // 4) if getattr(layer, "is_sliding", False) else mine == theirs


@pytest.mark.parametrize("name", ["llama", "qwen2", "gemma2", "phi3", "gpt2", "mixtral", "deepseek_v2"])
def test_flops_of_products_are_those_that_torch_counts(name):
    """Prefill of 2 x 16 tokens: torch's counter on meta sees the same products, and all pairs where we see half."""
    from torch.utils.flop_counter import FlopCounterMode

    from placewright.language import Formats, Step, step_graph

    given, module = built(name)
    model = model_of(given)
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        module.to(torch.bfloat16)(torch.zeros(2, 16, dtype=torch.int64, device="meta"), logits_to_keep=1)
    counted = {str(k).split(".")[-1]: n for k, n in counter.get_flop_counts()["Global"].items()}
    attention = sum(n for k, n in counted.items() if "scaled_dot" in k or "attention" in k)
    step = Step(2, {"text": 16, "last": 1}, 16)
    graph = step_graph(model, step, Formats())
    products = sum(v.flops for v in graph.operators if v.kind == "linear")  # torch counts no grouped products
    ours = sum(v.flops for v in graph.operators if v.kind == "attention")
    if attention:
        assert sum(counted.values()) - attention == products
        assert ours == attention * 17 // 32  # 16 x 17 / 2 pairs of 16 x 16
    else:  # the products of attention are counted with the others
        assert sum(counted.values()) == products + ours * 32 // 17


def test_experts_have_the_flops_of_all_tokens_that_are_sent_to_them():
    """32 tokens, 2 experts each, in 4 layers: so many rows of three 64 x 96 products, however many experts have one."""
    from placewright.language import Formats, Step, step_graph

    model = model_of(built("mixtral")[0])
    step = Step(2, {"text": 16, "last": 1}, 16)
    flops = [
        v.flops * step.active(p)
        for p, v in zip(model.parts, step_graph(model, step, Formats()).operators, strict=True)
        if p.share is not None
    ]
    assert len(flops) == 4 * 4
    assert sum(flops) == pytest.approx(4 * 32 * 2 * 3 * 2 * 64 * 96, rel=1e-6)
