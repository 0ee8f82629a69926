"""The cache of times: found again, safe to share, and never a reason to fail."""

import threading
from pathlib import Path

import pytest

from placewright.costs.cache import FILE_NAME, TimesCache, default_folder, key_of
from placewright.errors import InvalidInput


def test_what_is_put_is_found_by_a_later_cache(tmp_path: Path) -> None:
    """A second cache on the same folder, which needs not exist before, knows the time to the last bit."""
    folder = tmp_path / "new" / "folder"
    TimesCache(folder).put("k", 1 / 3)
    later = TimesCache(folder)
    assert (later.get("k"), later.get("absent"), len(later)) == (1 / 3, None, 1)


@pytest.mark.parametrize(
    "damage",
    [
        b"no json\n",
        b'{"key": "x", "seconds": -1}\n',
        b'{"key": "x", "seconds": 1e999}\n',
        b'{"key": "x", "seconds": "1"}\n',
        b'{"key": "x"}\n',
        b"[" * 4000 + b"\n",
        b"x" * 10_000 + b"\n",
        b"\xff\xfe\n",
        b'{"key": "cut off", "sec',
    ],
)
def test_damaged_lines_are_dropped_with_a_warning_and_the_file_is_mended(tmp_path: Path, damage: bytes) -> None:
    """The good entries survive, the reader is warned once, and the next reader finds a clean file."""
    TimesCache(tmp_path).put("good", 2.0)
    with (tmp_path / FILE_NAME).open("ab") as file:
        file.write(damage)
    with pytest.warns(UserWarning, match="can't be read"):
        mended = TimesCache(tmp_path)
    assert (mended.get("good"), mended.get("x"), len(mended)) == (2.0, None, 1)
    assert TimesCache(tmp_path).get("good") == 2.0
    assert [p.name for p in tmp_path.iterdir()] == [FILE_NAME]


def test_several_writers_lose_nothing(tmp_path: Path) -> None:
    """Eight writers, each with its own cache on one folder, append at once; all entries are read back."""

    def write(writer: int) -> None:
        cache = TimesCache(tmp_path)
        for k in range(50):
            cache.put(f"{writer}-{k}", float(writer * 50 + k))

    writers = [threading.Thread(target=write, args=(w,)) for w in range(8)]
    for w in writers:
        w.start()
    for w in writers:
        w.join()
    found = TimesCache(tmp_path)
    assert [found.get(f"{n // 50}-{n % 50}") for n in range(400)] == [float(n) for n in range(400)]


def test_a_folder_that_cant_be_made_is_named_with_the_remedy(tmp_path: Path) -> None:
    """A file where the folder should be ends in one line that names the variable to set."""
    (tmp_path / "file").write_text("")
    with pytest.raises(InvalidInput, match="PLACEWRIGHT_CACHE"):
        TimesCache(tmp_path / "file" / "below")


def test_the_folder_follows_the_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """PLACEWRIGHT_CACHE wins over XDG_CACHE_HOME, which wins over the home folder."""
    monkeypatch.delenv("PLACEWRIGHT_CACHE", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert default_folder() == tmp_path / "xdg" / "placewright"
    monkeypatch.setenv("PLACEWRIGHT_CACHE", str(tmp_path / "own"))
    assert default_folder() == tmp_path / "own"


def test_keys_depend_on_every_fact_and_not_on_their_order() -> None:
    """Two facts in either order give one key; each changed fact gives another."""
    key = key_of({"signature": "s", "threads": 1})
    assert key == key_of({"threads": 1, "signature": "s"})
    assert len({key, key_of({"signature": "s", "threads": 2}), key_of({"signature": "t", "threads": 1})}) == 3
