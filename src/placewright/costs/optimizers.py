"""What training keeps of each parameter: bytes of its gradient and of the state, by the optimiser's name."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

from placewright.errors import InvalidInput

__all__ = ["OPTIMIZERS", "Optimizer", "optimizer_named"]


class Optimizer(NamedTuple):
    """Bytes that stay from step to step, for each parameter of one number.

    Attributes
    ----------
    copies : int
        Numbers of the parameter's own dtype.
    more_bytes : float
        Beside these.
    gradient_bytes : float or None
        Of the gradient; ``None``: as the parameter.
    source : str
        Where the figure stands.
    """

    copies: int = 0
    more_bytes: float = 0.0
    gradient_bytes: float | None = None
    source: str = "state of torch.optim"


OPTIMIZERS: Mapping[str, Optimizer] = MappingProxyType(
    {
        "sgd": Optimizer(),
        "momentum": Optimizer(1),
        "rmsprop": Optimizer(1),
        "adagrad": Optimizer(1),
        "lion": Optimizer(1, source="Chen et al. 2023, arXiv 2302.06675"),
        "adam": Optimizer(2),
        "adamw": Optimizer(2),
        "adamw-8bit": Optimizer(
            0, 2 * (1 + 4 / 256), source="bitsandbytes: two states of a byte, and 4 bytes for each block of 256"
        ),
        "adamw-mixed": Optimizer(
            0, 12, source="Rajbhandari et al. 2020 (ZeRO, arXiv 1910.02054), section 3.1: fp32 copy and two states"
        ),
        "adamw-mixed-fp32-gradients": Optimizer(0, 12, 4, source="as adamw-mixed; gradients are summed in fp32"),
    }
)
"""By name; ``adamw-mixed`` is for parameters of 16 bits."""


def optimizer_named(name: str) -> Optimizer:
    """Find an optimiser by its name.

    Raises
    ------
    InvalidInput
        If there is none of that name.

    Examples
    --------
    Adam keeps two numbers of a parameter's own dtype:

    >>> optimizer_named("adamw").copies
    2
    """
    if (known := OPTIMIZERS.get(name.lower())) is None:
        raise InvalidInput(f"optimizer {name!r} is unknown; use one of {', '.join(OPTIMIZERS)}")
    return known
