"""Compiled pipelines on disk, of a driver that is made up: those that are here put nothing into Vulkan's cache."""

import os
from dataclasses import replace

import pytest

from vkdml.engine.vulkan import files
from vkdml.engine.vulkan.files import PipelineFile
from vkdml_lab.suite.devices import GPU

INFO = replace(GPU, vendor=0x1002, device_id=7, pipeline_cache_uuid=bytes(range(16)).hex())
HEADER = files._HEADER.pack(32, 1, 0x1002, 7, bytes(range(16)))
DATA = HEADER + b"pipelines"


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "vkdml" / "pipelines"


def write(info=INFO, data=DATA):
    PipelineFile(info).made(1.0, lambda: data)


def test_the_next_process_has_them(folder):
    assert PipelineFile(INFO).read() == b""
    write()
    assert PipelineFile(INFO).read() == DATA
    assert os.stat(folder).st_mode & 0o777 == 0o700


@pytest.mark.parametrize("other", [{"driver_version": "2"}, {"name": "other"}, {"pipeline_cache_uuid": "ff" * 16}, {"device_id": 8}])
def test_another_device_or_driver_has_not(other):
    write()
    assert PipelineFile(replace(INFO, **other)).read() == b""


@pytest.mark.parametrize("spoil", [lambda kept: kept[:-1], lambda kept: kept[:40], lambda kept: b"", lambda kept: kept[:-1] + b"x",
                                   lambda kept: b"x" + kept[1:]])
def test_a_torn_file_is_as_none(folder, spoil):
    write()
    (path,) = folder.iterdir()
    path.write_bytes(spoil(path.read_bytes()))
    assert PipelineFile(INFO).read() == b""


def test_a_file_of_another_driver_is_as_none(folder):
    write()
    (path,) = folder.iterdir()
    write(replace(INFO, device_id=8), files._HEADER.pack(32, 1, 0x1002, 8, bytes(range(16))) + b"pipelines")
    (other,) = set(folder.iterdir()) - {path}
    path.write_bytes(other.read_bytes())
    assert PipelineFile(INFO).read() == b""


@pytest.mark.parametrize("data", [HEADER, b"", b"no header of Vulkan's, and longer than one is"])
def test_nothing_is_written_of_a_driver_that_keeps_nothing(folder, data):
    write(data=data)
    assert not folder.exists()


def test_writing_is_worth_it(folder):
    kept, asked = PipelineFile(INFO), []
    kept.made(0.001, lambda: asked.append(1) or DATA)
    assert not asked
    kept.made(1.0, lambda: asked.append(1) or DATA)
    assert len(asked) == 1
    assert PipelineFile(INFO).read() == DATA
    kept._seconds = 10.0
    kept.made(30.0, lambda: asked.append(1) or DATA)
    assert len(asked) == 1


def test_files_are_bounded_and_the_oldest_go(folder, monkeypatch):
    monkeypatch.setattr(files, "_MOST_BYTES", 100)
    for version in range(4):
        write(replace(INFO, driver_version=str(version)))
        for path in folder.iterdir():
            os.utime(path, (path.stat().st_mtime - 10,) * 2)
    assert [bool(PipelineFile(replace(INFO, driver_version=str(version))).read()) for version in range(4)] == [False, False, True, True]
    write(data=HEADER + bytes(100))
    assert PipelineFile(INFO).read() == b""


def test_a_file_that_others_can_write_is_not_read(folder, tmp_path):
    """Nor a link, as another user's may lead to a file of ours."""
    write()
    (path,) = folder.iterdir()
    path.rename(tmp_path / "moved")
    path.symlink_to(tmp_path / "moved")
    assert PipelineFile(INFO).read() == b""
    (tmp_path / "moved").rename(path)
    assert PipelineFile(INFO).read() == DATA
    path.chmod(0o666)
    assert PipelineFile(INFO).read() == b""
    folder.chmod(0o777)
    path.chmod(0o600)
    assert PipelineFile(INFO).read() == b""


def test_a_folder_that_cannot_be_made(folder):
    folder.parent.write_bytes(b"")
    write()
    assert PipelineFile(INFO).read() == b""
