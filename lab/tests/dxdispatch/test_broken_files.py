"""DxDispatch's models, and files that they name, that somebody or something has broken; and what a model may name and ask for."""

import copy
import io
import json
import os
import random
import subprocess
import sys

import numpy as np
import pytest

import vkdml
from lab.tests.dxdispatch.support import SAMPLE, one_operator, relu, zeros
from vkdml_lab.dxdispatch import load
from vkdml_lab.dxdispatch.reader import parse
from vkdml_lab.internals import read_npy

A_BATCH = 100
VALUES: tuple = (None, True, 0, 1, -1, 3, 2**31, 2**32, 2**64, 10**30, 1.5, 1e39, "nan", "", "x", "FLOAT16", "UINT32", "UNKNOWN", "ACTIVATION_RELU",
          "DML_OPERATOR_GRU", "no.npy", "/dev/zero", "..", "fifo", "\0", [], {}, [[]], [0] * 9, {"value": 1, "valueCount": 3},
          {"value": 1, "valueCount": 2**60}, {"sourcePath": "v.npy"}, {"sourcePath": "."}, {"sourcePath": "fifo"}, {"sourcePath": "/dev/zero"},
          "print", "writeFile", "dispatch", "input", "output")
MEMBERS = ("x", "sizeInBytes", "Sizes", "Strides", "Type", "Desc", "type", "desc", "elementOffset", "sourcePath", "Flags", "initialValues")


def places(tree, path=()):
    for key, value in tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list) else ():
        yield tree, key
        yield from places(value, (*path, key))


def broken(rng):
    """The sample with one or two changes of its tree, and sometimes of its text."""
    tree = json.loads(SAMPLE.read_text())
    tree["commands"].append({"type": "writeFile", "resource": "output", "targetPath": "out.npy", "dimensions": [4, 2]})
    for _ in range(rng.randint(1, 2)):
        parent, key = rng.choice(list(places(tree)))
        other, where = rng.choice(list(places(tree)))
        kind = rng.choice(("drop", "value", "other", "add"))
        if kind == "drop":
            del parent[key]
        elif kind == "value":
            parent[key] = rng.choice(VALUES)
        elif kind == "other":
            parent[key] = copy.deepcopy(other[where])
        elif isinstance(parent, dict):
            parent[rng.choice(MEMBERS)] = rng.choice(VALUES)
        else:
            parent.insert(key, copy.deepcopy(parent[key]))
    text = json.dumps(tree)
    place = rng.randrange(len(text))
    return rng.choice((*[text] * 16, text[:place], text[:place] + rng.choice('"{}[],:/*\\\0é1') + text[place:], text[:place] + text[place + 1:],
                       text[:place] + "9" * 5000 + text[place:]))


@pytest.mark.device
@pytest.mark.family("batches of changes", first=3)
@pytest.mark.parametrize("batch", range(30))
def test_broken_models(run_model, tmp_path, batch):
    """Only VkdmlErrors come out."""
    os.mkfifo(tmp_path / "fifo")
    np.save(tmp_path / "v.npy", np.ones(4, np.float32))
    refused = []
    for seed in range(batch * A_BATCH, (batch + 1) * A_BATCH):
        try:
            run_model(broken(random.Random(seed)))
        except vkdml.errors.VkdmlError as error:
            refused.append(str(error))
    assert len(refused) > A_BATCH // 2
    assert all("model: " in message for message in refused)
    assert {path.name for path in tmp_path.iterdir()} <= {"fifo", "v.npy", "model.json", "out.npy", "x", "1", "3"}


HEADERS = ("(3,)", "()", "(1000000000000,)", "(-1,)", "(1,)*70", "(2**64,)", "(0, 10**30)", "((3,),)", "(3.0,)")
TYPES = ("'<f4'", "'|V0'", "'|S0'", "'<U0'", "'O'", "[('a','<f4')]", "'<M8[D]'", "3", "'x'")


def broken_npy(rng):
    if rng.random() < 0.5:
        file = io.BytesIO()
        np.save(file, np.arange(rng.randint(0, 5), dtype=rng.choice(["f4", ">f8", "i1", "c16"])))
        data = file.getvalue()
        place = rng.randrange(len(data))
        return rng.choice((data[:place], data[:place] + rng.randbytes(1) + data[place + 1:], data[:place] + rng.randbytes(5) + data[place:]))
    header = "(" * rng.choice((0, 0, 10, 2000)) + \
        f"{{'descr': {rng.choice(TYPES)}, 'fortran_order': {rng.choice(('False', 'True', '1'))}, 'shape': {rng.choice(HEADERS)}, }}"
    version = rng.choice(((1, 0), (2, 0), (3, 0), (9, 9)))
    return b"\x93NUMPY" + bytes(version) + len(header).to_bytes(2 if version == (1, 0) else 4, "little") + header.encode() + rng.randbytes(12)


@pytest.mark.filterwarnings("ignore:invalid escape")  # numpy evaluates headers
def test_broken_npy_files(tmp_path):
    read, refused = 0, []
    for seed in range(300):
        (tmp_path / "a.npy").write_bytes(broken_npy(random.Random(seed)))
        try:
            read += isinstance(read_npy(tmp_path / "a.npy"), np.ndarray)
        except (OSError, ValueError) as error:
            refused.append(str(error))
    assert read > 5
    assert all(refused)


def test_a_header_of_10_tb_is_refused_before_memory_is_taken(tmp_path, monkeypatch):
    header = b"{'descr': '<f4', 'fortran_order': False, 'shape': (2500000000000,), }"
    (tmp_path / "a.npy").write_bytes(b"\x93NUMPY\1\0" + len(header).to_bytes(2, "little") + header + bytes(4))
    monkeypatch.setattr(np.lib.format, "read_array", None)
    with pytest.raises(ValueError, match=r"an array \(2500000000000,\) of float32 in 4 bytes"):
        read_npy(tmp_path / "a.npy")


def source(name, **members):
    return {"resources": {"r": {"initialValues": {"sourcePath": name}, "initialValuesDataType": "FLOAT32"} | members},
            "dispatchables": {}, "commands": []}


def target(name):
    return {"resources": {"r": zeros(4)}, "dispatchables": {}, "commands": [{"type": "writeFile", "resource": "r", "targetPath": name}]}


@pytest.fixture
def outside(tmp_path, monkeypatch):
    """A folder beside that of `load_model`'s models, in which the process is."""
    folder = tmp_path.parent / f"{tmp_path.name}-outside"
    folder.mkdir()
    np.arange(4, dtype=np.float32).tofile(folder / "a.bin")
    monkeypatch.chdir(folder)
    (tmp_path / "link.bin").symlink_to(folder / "a.bin")
    (tmp_path / "linked").symlink_to(folder)
    return folder


@pytest.mark.parametrize("name", ["../{0}/a.bin", "{1}/a.bin", "link.bin", "linked/a.bin", "a.bin"])
def test_sources_are_in_the_models_folder(load_model, outside, name):
    name = name.format(outside.name, outside)
    with pytest.raises(vkdml.InvalidArgumentError, match=r"resources\.r\.initialValues\.sourcePath: found .*in the model's folder"):
        load_model(source(name))
    assert load_model(source(name), allow_outside=True).resources["r"].values.tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize("name", ["../{0}/new.bin", "{1}/new.bin", "linked/new.bin", "link.bin"])
def test_targets_are_in_the_models_folder(load_model, device, outside, name):
    name = name.format(outside.name, outside)
    with pytest.raises(vkdml.InvalidArgumentError, match=r"commands\[0\]\.targetPath: found .*in the model's folder"):
        load_model(target(name))
    assert [path.name for path in outside.iterdir()] == ["a.bin"]
    load_model(target("in/new.bin")).run(device)
    assert (outside.parent / outside.name.removesuffix("-outside") / "in" / "new.bin").read_bytes() == bytes(16)
    if not name.startswith("link"):
        load_model(target(name), allow_outside=True).run(device)
        assert (outside / "new.bin").read_bytes() == bytes(16)


def test_only_regular_files(load_model, device, tmp_path):
    os.mkfifo(tmp_path / "fifo.bin")
    for model, message in ((source("fifo.bin"), "not a regular file"), (source("."), "not a regular file|directory")):
        with pytest.raises(vkdml.InvalidArgumentError, match=message):
            load_model(model)
    with pytest.raises(vkdml.InvalidArgumentError, match="not a regular file"):
        load_model(source("/dev/zero"), allow_outside=True)
    with pytest.raises(vkdml.InvalidArgumentError, match=r"commands\[0\]\.targetPath"):
        load_model(target("fifo.bin")).run(device)
    for path in ("/dev/zero", tmp_path, tmp_path / "fifo.bin", "no\0name"):
        with pytest.raises(vkdml.InvalidArgumentError, match="a DxDispatch model in JSON"):
            load(path)
    with pytest.raises(vkdml.InvalidArgumentError, match="path: found int"):
        load(3)


GIB = {"initialValuesDataType": "FLOAT32", "initialValues": {"valueCount": 2**28, "value": 0}}


@pytest.mark.parametrize(("model", "place"), [
    ({"resources": {"a": GIB, "b": zeros(1)}}, r"resources\.b\.initialValues\.valueCount"),
    ({"resources": {"a": zeros(1) | {"sizeInBytes": 2**30 + 4}}}, r"resources\.a\.sizeInBytes"),
    ({"resources": {str(i): zeros(1) | {"sizeInBytes": 2**28} for i in range(5)}}, r"resources\.4\.initialValues\.valueCount"),
    ({"dispatchables": {"one": relu(2**27), "two": relu(4)}}, r"dispatchables\.two"),
])
def test_a_short_model_cannot_ask_for_much_memory(load_model, monkeypatch, model, place):
    monkeypatch.setattr(np, "full", lambda count, value: np.broadcast_to(value, count))
    with pytest.raises(vkdml.InvalidArgumentError, match=place + ": found 10.* bytes with all before it; expected at most 1073741824 bytes"):
        load_model({"resources": {}, "dispatchables": {}, "commands": []} | model)


def test_the_limit_of_memory_can_be_set(load_model):
    model = one_operator(relu(8), {"x": zeros(8), "y": zeros(8)}, {"InputTensor": "x", "OutputTensor": "y"})
    load_model(model, max_bytes=128)
    with pytest.raises(vkdml.InvalidArgumentError, match="at most 127 bytes of resources and tensors; max_bytes sets the limit"):
        load_model(model, max_bytes=127)
    for wrong in (0, -1, 1.5, None, True):
        with pytest.raises(vkdml.InvalidArgumentError, match="max_bytes: found"):
            load_model(model, max_bytes=wrong)


def test_text_without_an_end_is_read_once():
    """In a time that grows with its length: with its square, the first would take hours."""
    code = """from vkdml_lab.dxdispatch.reader import parse
for text in ('"' + r'\\"' * 300_000, "/* " * 300_000, "[" * 300_000, '{"a":' * 300_000):
    try: parse(text)
    except ValueError: print("refused")"""
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=100).stdout.split() == ["refused"] * 4


def test_how_deep_json_may_be():
    assert parse("[" * 64 + '"[[["' + "]" * 64)
    with pytest.raises(ValueError, match="more than 64 lists and objects in one another"):
        parse("[" * 65 + "]" * 65)
