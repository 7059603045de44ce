"""What is kept on disk, and what is not."""

import json
import multiprocessing
import os
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from vkdml.engine.trust import choices
from vkdml.engine.trust.choices import Choices
from vkdml_lab.suite.devices import GPU

KEY, VALUE = {"cell": "GRU", "hidden": 5, "lengths": True}, {"tiling": {"rows": 1}, "seconds": 0.25}


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path


def files(place):
    return sorted(path for path in place.rglob("*") if path.is_file())


def test_what_was_put_is_there_for_others(cache):
    assert Choices(GPU).get(KEY) is None
    assert files(cache) == []
    Choices(GPU).put(KEY, VALUE)
    Choices(GPU).put(KEY, VALUE)
    assert Choices(GPU).get(KEY) == VALUE
    assert choices.folder() == cache / "vkdml" / "tuning"
    assert choices.count() == len(files(cache)) == 1


@pytest.mark.parametrize("other", [{"name": "another"}, {"driver": "another"}, {"driver_version": "2"}, {"pipeline_cache_uuid": "ab" * 16}])
def test_each_device_and_driver_has_its_own(other):
    Choices(GPU).put(KEY, VALUE)
    assert Choices(replace(GPU, **other)).get(KEY) is None
    assert Choices(replace(GPU, index=1)).get(KEY) == VALUE


def test_other_kernels_have_their_own(monkeypatch):
    Choices(GPU).put(KEY, VALUE)
    monkeypatch.setattr(choices, "_version", lambda: "of tomorrow")
    assert Choices(GPU).get(KEY) is None


@pytest.mark.parametrize("content", [
    b"", b"{", b"\xff\xfe", b"[]", b"null", b'{"key": 1}', b"[" * 100_000, b'{"key": {}, "value": {"tiling": 1}}'])
def test_a_file_that_says_something_else_is_none(cache, content):
    Choices(GPU).put(KEY, VALUE)
    (path,) = files(cache)
    path.write_bytes(content)
    assert Choices(GPU).get(KEY) is None
    Choices(GPU).put(KEY, VALUE)
    assert Choices(GPU).get(KEY) == VALUE


def test_a_value_must_be_a_dictionary(cache):
    Choices(GPU).put(KEY, VALUE)
    (path,) = files(cache)
    path.write_text(json.dumps({**json.loads(path.read_text()), "value": [1]}))
    assert Choices(GPU).get(KEY) is None


def test_where_nothing_can_be_written_nothing_is_kept(cache, monkeypatch):
    (cache / "vkdml").write_text("a file, where the folder would be")
    Choices(GPU).put(KEY, VALUE)
    assert Choices(GPU).get(KEY) is None
    assert choices.count() == 0
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setattr(Path, "home", lambda: (_ for _ in ()).throw(RuntimeError("no home")))
    assert choices.folder() is None
    Choices(GPU).put(KEY, VALUE)
    assert Choices(GPU).get(KEY) is None
    assert choices.count() == 0


@pytest.mark.parametrize("error", [OSError, KeyboardInterrupt])
def test_a_write_that_fails_leaves_nothing_behind(cache, monkeypatch, error):
    def fail(*_):
        raise error

    monkeypatch.setattr(os, "replace", fail)
    with suppress(KeyboardInterrupt):
        Choices(GPU).put(KEY, VALUE)
    assert files(cache) == []


def test_a_relative_folder_is_not_where_the_cache_is(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", "here")
    monkeypatch.setattr(Path, "home", lambda: tmp_path)
    assert choices.folder() == tmp_path / ".cache" / "vkdml" / "tuning"


def put_and_get(number):
    """In a process of its own: how often a whole value was not there."""
    kept = Choices(GPU)
    missing = 0
    for _ in range(50):
        kept.put(KEY, {"numbers": [number] * 2000})
        found = Choices(GPU).get(KEY)
        missing += not found or len(set(found["numbers"])) != 1 or len(found["numbers"]) != 2000
    return missing


def test_processes_write_at_once(cache):
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        assert pool.map(put_and_get, range(2), chunksize=1) == [0, 0]
    assert len(files(cache)) == 1


@pytest.mark.parametrize("mode", [0o770, 0o707, 0o777])
def test_a_folder_that_others_can_write_to_is_ignored(cache, mode):
    Choices(GPU).put(KEY, VALUE)
    (path,) = files(cache)
    assert path.parent.stat().st_mode & 0o777 == 0o700
    path.parent.chmod(mode)
    with pytest.warns(RuntimeWarning, match="is ignored: its owner is another user, or others can write to it"):
        chosen = Choices(GPU)
    assert chosen.get(KEY) is None
    chosen.put(KEY, {"other": 1})
    path.parent.chmod(0o700)
    assert Choices(GPU).get(KEY) == VALUE


def test_a_folder_of_another_user_is_ignored(cache, monkeypatch):
    Choices(GPU).put(KEY, VALUE)
    (path,) = files(cache)
    owner = path.stat().st_uid
    monkeypatch.setattr(os, "geteuid", lambda: owner + 1)
    if owner:  # root's are trusted
        with pytest.warns(RuntimeWarning, match="is ignored"):
            assert Choices(GPU).get(KEY) is None
    else:
        assert Choices(GPU).get(KEY) == VALUE
        os.chown(path.parent, 12345, -1)
        with pytest.warns(RuntimeWarning, match="is ignored"):
            assert Choices(GPU).get(KEY) is None


def test_a_file_that_others_can_write_to_is_ignored(cache):
    Choices(GPU).put(KEY, VALUE)
    (path,) = files(cache)
    path.chmod(0o666)
    assert Choices(GPU).get(KEY) is None
    path.unlink()
    os.mkfifo(path, 0o600)
    assert Choices(GPU).get(KEY) is None


@pytest.mark.parametrize(("hours", "is_believed"), [([0, 1], False), ([0, 1, 2], True), ([0, 1, 2, 25], True), ([0, 30, 60], True)])
def test_the_third_give_up_is_believed_for_a_day(monkeypatch, hours, is_believed):
    now = [1e9]
    monkeypatch.setattr(choices, "time", SimpleNamespace(time=lambda: now[0]))
    for hour in hours:
        now[0] = 1e9 + 3600 * hour
        Choices(GPU).count_give_up(KEY)
    assert Choices(GPU).gives_up(KEY) == is_believed
    assert not Choices(GPU).gives_up({**KEY, "hidden": 6})
    now[0] += 25 * 3600
    assert not Choices(GPU).gives_up(KEY)
    Choices(GPU).count_give_up(KEY)
    assert Choices(GPU).gives_up(KEY)  # at once, after two before


def test_what_killed_processes_left_is_swept(cache):
    """But not what another process may be writing now."""
    Choices(GPU).put(KEY, VALUE)
    (path,) = files(cache)
    for name, age in (("old", 7200), ("new", 60)):
        left = path.with_name(f"{name}.tmp")
        left.touch()
        os.utime(left, (time.time() - age,) * 2)
    Choices(GPU).put(KEY, VALUE)
    assert files(cache) == [path, path.with_name("new.tmp")]
