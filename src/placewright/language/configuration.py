"""A model's configuration as transformers writes it: read as data, each number checked when it is asked for."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from placewright.errors import InvalidInput
from placewright.io.reading import decode_json, read_bounded

__all__ = ["Configuration", "read_configuration"]

LARGEST_BYTES = 16 * 2**20
LARGEST_NUMBER = 2**31
MOST_LAYERS = 10_000


class Configuration:
    """Numbers and options by their names in transformers.

    What isn't given is looked for under the family's other name of it, among the family's defaults, and at last in
    transformers' own configuration class, where that is installed.

    Parameters
    ----------
    given : mapping
    aliases, defaults : mapping
        Of the family.
    what : str
        Named in messages.
    """

    def __init__(
        self,
        given: Mapping[str, Any],
        aliases: Mapping[str, str] | None = None,
        defaults: Mapping[str, Any] | None = None,
        what: str = "configuration",
    ) -> None:
        self.given, self.aliases, self.defaults, self.what = given, aliases or {}, defaults or {}, what
        self._own_defaults: Mapping[str, Any] | None = None

    def value(self, name: str) -> Any:
        """Return what stands there; ``None`` where nothing does."""
        for source in (self.given, self.defaults):
            for spelt in (name, self.aliases.get(name, name)):
                if source.get(spelt) is not None:
                    return source[spelt]
        return None

    def count(self, name: str, default: int | None = None, least: int = 1) -> int:
        """Return a whole number from ``least`` to 2^31.

        Raises
        ------
        InvalidInput
            If it is something else, or missing without a default.
        """
        value = self.value(name)
        if value is None:
            value = default if default is not None else self._of_transformers(name)
        if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= LARGEST_NUMBER:
            said = "is missing; add it" if value is None else f"is {value!r}; give a whole number from {least} to 2^31"
            raise InvalidInput(f"{name} {said}", what=self.what)
        return value

    def listed(self, name: str, default: int | tuple[int, ...], length: int = 0) -> list[int]:
        """Return whole numbers that are given one by one, or one for all.

        Parameters
        ----------
        name : str
        default : int or tuple of int
        length : int
            How many there are; 0: as many as are listed.

        Raises
        ------
        InvalidInput
            If it is something else.
        """
        value = self.value(name)
        value = default if value is None else value
        found = list(value) if isinstance(value, list | tuple) else [value] * (length or 1)
        good = all(isinstance(n, int) and not isinstance(n, bool) and 1 <= n <= LARGEST_NUMBER for n in found)
        if not good or not found or len(found) > MOST_LAYERS or (length and len(found) != length):
            many = f"{length} of them, or one for all" if length else "a list"
            raise InvalidInput(f"{name} is {value!r}; give whole numbers from 1 to 2^31, {many}", what=self.what)
        return found

    def layers(self, name: str, default: int | None = None) -> int:
        """Return how many layers there are, at most 10,000.

        Raises
        ------
        InvalidInput
            As :meth:`count`, and if there are more.
        """
        found = self.count(name, default)
        if found > MOST_LAYERS:
            raise InvalidInput(f"{name} {found} is more than the {MOST_LAYERS} layers that are read", what=self.what)
        return found

    def flag(self, name: str, default: bool = False) -> bool:
        """Return an option that is true or false."""
        value = self.value(name)
        if value is None:
            return default
        if not isinstance(value, bool):
            raise InvalidInput(f"{name} {value!r} is neither true nor false; correct it", what=self.what)
        return value

    def has(self, option: bool | str) -> bool:
        """Whether a family has something: always, never, or as the option of this name says."""
        return self.flag(option) if isinstance(option, str) else option

    def part(self, name: str) -> Mapping[str, Any]:
        """Return a configuration inside this one, such as ``text_config``."""
        value = self.given.get(name)
        if not isinstance(value, Mapping):
            raise InvalidInput(f"{name} is missing or no object; give the configuration of that part", what=self.what)
        return value

    def _of_transformers(self, name: str) -> Any:
        if self._own_defaults is None:
            self._own_defaults = _defaults_of(str(self.given.get("model_type", "")))
        return self._own_defaults.get(self.aliases.get(name, name))


def _defaults_of(model_type: str) -> Mapping[str, Any]:
    try:
        from transformers import AutoConfig

        found: Mapping[str, Any] = AutoConfig.for_model(model_type).to_dict()
    except (ImportError, ValueError):
        return {}
    return found


def read_configuration(path: Path) -> dict[str, Any]:
    """Read a ``config.json``, or the one in a folder.

    Raises
    ------
    InvalidInput
        If there is none, it is larger than 16 MiB, or no JSON object.
    """
    file = path / "config.json" if path.is_dir() else path
    return decode_json(
        read_bounded(file, "configuration", LARGEST_BYTES), dict[str, Any], f"configuration {str(file)!r}"
    )
