"""What training a torch program holds, against sums worked by hand and what autograd really keeps."""

from __future__ import annotations

from collections.abc import Callable

import pytest

torch = pytest.importorskip("torch")

from placewright.capture.torch_export import export_module  # noqa: E402
from placewright.costs.recomputation import Storage, kept_bytes  # noqa: E402
from placewright.costs.torch_training import training_memory  # noqa: E402
from placewright.errors import InvalidInput  # noqa: E402
from tests.costs.trained import IDS, PICTURES, Convolutions, Decoder, Perceptron  # noqa: E402

nn = torch.nn


def kept_by_autograd(module: nn.Module, inputs: tuple[torch.Tensor, ...]) -> int:
    """Bytes of the storages that a real forward pass saves, weights and inputs left out."""
    given = {t.untyped_storage().data_ptr() for t in (*module.parameters(), *module.buffers(), *inputs)}
    kept: dict[int, torch.Tensor] = {}

    def save(tensor: torch.Tensor) -> torch.Tensor:
        if tensor.untyped_storage().data_ptr() not in given:
            kept[tensor.untyped_storage().data_ptr()] = tensor.detach()
        return tensor.detach()

    with torch.autograd.graph.saved_tensors_hooks(save, lambda t: t):
        module(*inputs)
    return sum(t.untyped_storage().nbytes() for t in kept.values())


def test_a_perceptron_by_hand() -> None:
    """ReLU saves its result, which is all that the second product needs, and the error saves what it compares.

    5 samples: 5 x 16 numbers that relu and the second product both keep, 5 x 4 of the error; the inputs are given.
    Parameters: 8 x 16 + 16 and 16 x 4 + 4 numbers of 4 bytes.
    """
    found = training_memory(export_module(Perceptron(), (torch.zeros(5, 8), torch.zeros(5, 4))))
    saved = [s for s in found.storages if s.savers]
    assert [s.size_bytes for s in saved] == [4 * 5 * 16, 4 * 5 * 4]
    assert [s.savers[0] for s in saved] == ["relu", "mse_loss"] and [s.maker for s in saved] == ["relu", "down"]
    assert sorted(found.parameters.values()) == [(68, 4 * 68), (144, 4 * 144)]
    # The largest gradient that comes and goes is that of the first weight; the gradient of its input is not wanted.
    assert 4 * 144 <= found.working_bytes <= found.peak_bytes <= found.saved_bytes + found.working_bytes


@pytest.mark.parametrize(("network", "inputs"), [(Decoder, IDS), (Convolutions, PICTURES)])
def test_as_much_is_saved_as_by_autograd(network: Callable[[], nn.Module], inputs: tuple[torch.Tensor, ...]) -> None:
    """On a CPU with real tensors, attention without scores and batch normalisation included, to the byte."""
    module = network().train()
    assert training_memory(export_module(module, inputs)).saved_bytes == kept_by_autograd(module, inputs)


def test_layers_that_are_computed_again_keep_their_inputs() -> None:
    """As much as torch's checkpointing of each layer keeps; what a layer makes anew is the rest."""
    module = Decoder().train()
    found = training_memory(export_module(module, IDS))
    kept, again = kept_bytes(found.storages, "full")
    # Embedding -> layer 0 and layer 0 -> layer 1: 3 x 8 x 16 numbers each; beyond the layers the head and its loss.
    inside = sum(size for name, size in kept.items() if name.startswith("layers."))
    assert inside == 2 * 4 * 3 * 8 * 16
    assert sum(kept.values()) + 2 * again == found.saved_bytes
    module.again = True
    assert sum(kept.values()) == kept_by_autograd(module, IDS)


def test_stages_take_no_more_than_the_whole() -> None:
    """What comes and goes in a stage of a chain by itself is at most that of the whole and what it hands on."""
    layers = [nn.Linear(8, 64), nn.GELU(), nn.LayerNorm(64), nn.Linear(64, 16), nn.Tanh(), nn.Linear(16, 2)]
    whole = training_memory(export_module(nn.Sequential(*layers), (torch.zeros(4, 8),)))
    for cut, width in ((2, 64), (4, 16)):
        parts = (nn.Sequential(*layers[:cut]), 8), (nn.Sequential(*layers[cut:]), width)
        stages = [training_memory(export_module(part, (torch.zeros(4, wide),))) for part, wide in parts]
        assert max(stage.working_bytes for stage in stages) <= whole.working_bytes + 4 * 4 * width
        assert sum(stage.parameter_bytes for stage in stages) == whole.parameter_bytes


def test_tied_and_frozen_parameters() -> None:
    """A tied parameter counts once, at its first reader; one without gradients not at all, nor what it alone needs."""
    module = Decoder()
    found = training_memory(export_module(module, IDS))
    assert found.parameter_bytes == sum(4 * p.numel() for p in module.parameters())
    assert found.parameters["embed"] == (32 * 16, 4 * 32 * 16) and "head" not in found.parameters
    for name, parameter in module.named_parameters():
        parameter.requires_grad_("layers.1" in name)
    some = training_memory(export_module(module, IDS))
    assert all(name.startswith("layers.1") for name in some.parameters)
    assert 0 < some.saved_bytes < found.saved_bytes


def test_a_network_without_parameters() -> None:
    """There is nothing to train, which is said."""
    with pytest.raises(InvalidInput, match="no output depends on a parameter"):
        training_memory(export_module(nn.ReLU(), (torch.zeros(3),)))


def test_a_tensor_that_a_layer_leaves_to_the_next_is_kept_there() -> None:
    """Made and saved in layer 0, and saved in layer 1 too: computed again in one, kept at the other."""
    made = [Storage("h.0.act", 8, ("h.0.act", "h.1.norm"), ("h.1.norm",))]
    assert kept_bytes(made, "none") == ({"h.0.act": 8}, 0)
    assert kept_bytes(made, "full") == ({"h.1.norm": 8}, 8)
