"""Maps of a diffusion pipeline's components, as diffusers and transformers load them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")
pytest.importorskip("accelerate")
pytest.importorskip("diffusers")

from placewright.costs import analytic  # noqa: E402
from placewright.diffusion import PictureAsked, pose_pipeline, read_pipeline  # noqa: E402
from placewright.evaluate import plan_for  # noqa: E402
from placewright.export import export_plan  # noqa: E402
from placewright.objective import Makespan  # noqa: E402
from tests.diffusion.small_pipelines import PIPELINES, written  # noqa: E402
from tests.diffusion.test_parts import inputs  # noqa: E402
from tests.diffusion.test_posed import PAIR  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning")


def built(kind: str, given: dict[str, Any]) -> Any:
    import diffusers
    import transformers

    torch.manual_seed(0)
    if "model_type" in given:
        return getattr(transformers, kind)(transformers.AutoConfig.for_model(**given)).eval()
    return getattr(diffusers, kind).from_config({"_class_name": kind, **given}).eval()


def mapped(folder: Path, name: str, parted: bool) -> dict[str, dict[str, int]]:
    """Export a plan: layers by turns on two devices; of a U-Net's blocks on the way up those too, or each whole."""
    pipeline = read_pipeline(f"hf:{written(folder / 'p', name)}")
    problem = pose_pipeline(pipeline, PAIR, PictureAsked(64, 48, 2), Makespan(), analytic).problem
    at: dict[str, int] = {}
    device_of = []
    for v in problem.graph.operators:
        words = v.name.split(".")
        digit = next((k for k, w in enumerate(words) if w.isdigit()), len(words) - 1)
        deep = 4 if words[1] == "down_blocks" or (parted and words[1] == "up_blocks") else digit
        at.setdefault(".".join(words[: deep + 1]), len(at) % 2)
        device_of.append(at[".".join(words[: deep + 1])])
    plan = plan_for(problem, np.array(device_of, dtype=np.int32))
    assert plan is not None
    found: dict[str, dict[str, int]] = json.loads(export_plan(problem, plan, "diffusers", budget=1).text)
    return found


@pytest.mark.parametrize("name", ["sdxl", "flux"])
def test_every_component_is_loaded_by_its_map_and_computes_the_same(name: str, tmp_path: Path) -> None:
    """accelerate accepts each map; half from memory and half from disk, a component gives what it gives whole.

    The numbers of the accelerators are put to ``cpu`` and ``disk`` first, as there is none here: hooks are the same.
    """
    from accelerate.utils import check_device_map

    maps = mapped(tmp_path, name, parted=False)
    assert list(maps) == list(PIPELINES[name][1])
    split = 0
    for component, (kind, given) in PIPELINES[name][1].items():
        module, found = built(kind, given), maps[component]
        check_device_map(module, found)
        split += len(set(found.values())) > 1
        module.save_pretrained(tmp_path / component)
        words = {0: "cpu", 1: "disk"}
        loaded = type(module).from_pretrained(
            tmp_path / component,
            device_map={path: words[device] for path, device in found.items()},
            offload_folder=tmp_path / "offload",
        )
        if component == "vae":
            args, named = (torch.ones(1, 4, 4, 4),), {}
            wanted, got = module.decode(*args).sample, loaded.decode(*args).sample
        else:
            args, named = inputs(kind, given, 2, 12, (8, 8), 16)
            args = tuple(a.float() if torch.is_tensor(a) and a.is_floating_point() else a for a in args)
            with torch.no_grad():
                wanted, got = (m.float()(*args, **named)[0] for m in (module, loaded))
        assert torch.allclose(wanted, got, atol=1e-4), component
    assert split >= len(maps) - 1


def test_blocks_on_the_way_up_of_a_u_net_are_not_parted(tmp_path: Path) -> None:
    """They join what comes from the way down with their input themselves, which accelerate does not move."""
    unet = mapped(tmp_path, "sdxl", parted=True)["unet"]
    for k in range(3):
        assert len({device for path, device in unet.items() if path.startswith(f"up_blocks.{k}.")}) == 1
    assert unet["time_embedding"] == unet["add_embedding"]
