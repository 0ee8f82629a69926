"""``torchrun`` that ends with whoever started it, however that one ends; its ranks end with it."""

from __future__ import annotations

from placewright.host import end_with_parent

__all__ = ["main"]


def main() -> None:
    """Do what ``python -m torch.distributed.run`` does."""
    end_with_parent()
    from torch.distributed.run import main as run

    run()


if __name__ == "__main__":
    main()
