"""DxDispatch's resources: values in every way to write them, in files too."""

import numpy as np
import pytest

import vkdml

INITIALIZERS = [
    ({"initialValuesDataType": "DML_TENSOR_DATA_TYPE_FLOAT32", "initialValues": [1, 2.5, "NaN", "inf", "-Inf"]},
     np.array([1, 2.5, np.nan, np.inf, -np.inf], np.float32)),
    ({"initialValuesDataType": "FLOAT32", "initialValues": [3.4028235e38, -0.0]}, np.array([3.4028235e38, -0.0], np.float32)),
    ({"initialValuesDataType": "FLOAT16", "initialValues": [65504, -6, 0.1]}, np.array([65504, -6, 0.1], np.float16)),
    ({"initialValuesDataType": "FLOAT64", "initialValues": [0.1, 1e300]}, np.array([0.1, 1e300])),
    ({"initialValuesDataType": "UINT8", "initialValues": [0, 255]}, np.array([0, 255], np.uint8)),
    ({"initialValuesDataType": "UINT16", "initialValues": [65535]}, np.array([65535], np.uint16)),
    ({"initialValuesDataType": "UINT32", "initialValues": [2**32 - 1]}, np.array([2**32 - 1], np.uint32)),
    ({"initialValuesDataType": "UINT64", "initialValues": [2**64 - 1]}, np.array([2**64 - 1], np.uint64)),
    ({"initialValuesDataType": "INT8", "initialValues": [-128, 127, 1]}, np.array([-128, 127, 1], np.int8)),
    ({"initialValuesDataType": "INT16", "initialValues": [-32768]}, np.array([-32768], np.int16)),
    ({"initialValuesDataType": "INT32", "initialValues": [-2**31]}, np.array([-2**31], np.int32)),
    ({"initialValuesDataType": "INT64", "initialValues": [-2**63, 7]}, np.array([-2**63, 7], np.int64)),
    ({"type": "buffer", "initialValuesDataType": "FLOAT32", "initialValues": {"valueCount": 4, "value": "nan"}},
     np.full(4, np.nan, np.float32)),
    ({"initialValuesDataType": "INT8", "initialValues": {"valueCount": 5, "value": -7}}, np.full(5, -7, np.int8)),
    ({"initialValuesDataType": "FLOAT32", "initialValues": {"valueCount": 4, "valueStart": 1, "valueDelta": 2.5}},
     np.array([1, 3.5, 6, 8.5], np.float32)),
    ({"initialValuesDataType": "FLOAT16", "initialValues": {"valueCount": 4, "valueStart": 1, "valueDelta": 0.4}},
     np.array([1, 1.4, 1.8008, 2.2012], np.float16)),  # rounded at each step: 1.8 would be 1.7998
    ({"initialValuesDataType": "UINT8", "initialValues": {"valueCount": 3, "valueStart": 250, "valueDelta": 4}},
     np.array([250, 254, 2], np.uint8)),
    ({"initialValuesDataType": "FLOAT32", "initialValues": [1, 2, 3], "sizeInBytes": 250}, np.array([1, 2, 3], np.float32)),
]


@pytest.mark.parametrize(("resource", "expected"), INITIALIZERS, ids=str)
def test_initial_values(load_model, device, resource, expected):
    model = load_model({"resources": {"r": resource}, "dispatchables": {}, "commands": [{"type": "print", "resource": "r"}]})
    assert model.resources["r"].values.dtype == expected.dtype
    assert model.resources["r"].size_in_bytes == -(-resource.get("sizeInBytes", expected.nbytes) // 4) * 4
    (printed,) = model.run(device)
    np.testing.assert_array_equal(np.array(printed.values, expected.dtype), expected)
    assert np.signbit(printed.values).tolist() == np.signbit(expected).tolist()


def test_values_of_different_types(run_model, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    mixed = [{"name": "count", "type": "UINT32", "value": 6}, {"type": "DML_TENSOR_DATA_TYPE_FLOAT32", "value": 2.3},
             {"type": "INT8", "value": -1}, {"type": "FLOAT16", "value": "inf"}]
    for data_type in ({}, {"initialValuesDataType": "UNKNOWN"}):
        run_model({"resources": {"r": {"initialValues": mixed, "sizeInBytes": 14} | data_type}, "dispatchables": {},
                   "commands": [{"type": "writeFile", "resource": "r", "targetPath": "out.bin"}]})
        expected = b"".join((np.uint32(6).tobytes(), np.float32(2.3).tobytes(), np.int8(-1).tobytes(), np.float16("inf").tobytes()))
        assert (tmp_path / "out.bin").read_bytes() == expected + bytes(5)


def test_values_in_files(load_model, device, tmp_path, monkeypatch):
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    values = np.arange(6, dtype=np.float32).reshape(2, 3)
    np.save(tmp_path / "swapped.npy", values.astype(">f4"))
    np.save(tmp_path / "fortran.NPY.npy", np.asfortranarray(values))
    np.save(tmp_path / "both.npy", values)
    np.save("both.npy", -values)
    values.astype(np.float16).tofile("here.bin")
    files = {"swapped.npy": {}, "fortran.NPY.npy": {"initialValuesDataType": "FLOAT32"}, "both.npy": {},
             "here.bin": {"initialValuesDataType": "FLOAT16"}}
    model = load_model({"resources": {name: {"initialValues": {"sourcePath": name}} | members for name, members in files.items()},
                        "dispatchables": {}, "commands": [{"type": "print", "resource": name} for name in files]}, allow_outside=True)
    assert all(resource.values.dtype.isnative for resource in model.resources.values())
    assert [result.values for result in model.run(device)] == [[0, 1, 2, 3, 4, 5]] * 4


@pytest.mark.parametrize("command", [{"type": "print", "resource": "r"}, {"type": "writeFile", "resource": "r", "targetPath": "a.npy"}])
def test_values_of_different_types_have_no_type(load_model, command):
    model = {"resources": {"r": {"initialValues": [{"type": "INT8", "value": 1}]}}, "dispatchables": {}, "commands": [command]}
    with pytest.raises(vkdml.InvalidArgumentError, match=r"commands\[0\].resource: found r, of type UNKNOWN"):
        load_model(model)


@pytest.mark.parametrize(("content", "message"), [
    (b"no npy", r"sourcePath: found r\.npy \("),
    (np.zeros(3, complex), r'sourcePath: found "COMPLEX128"; expected one of'),
    (np.zeros(3, np.int8), r"initialValuesDataType: found FLOAT32; expected INT8, the type of r\.npy"),
    (np.array([None]), r"sourcePath: found r\.npy \(Object arrays"),
])
def test_refused_npy_files(load_model, tmp_path, content, message):
    if isinstance(content, bytes):
        (tmp_path / "r.npy").write_bytes(content)
    else:
        np.save(tmp_path / "r.npy", content)
    with pytest.raises(vkdml.InvalidArgumentError, match=r"model: resources\.r\.(initialValues\.)?" + message):
        load_model({"resources": {"r": {"initialValues": {"sourcePath": "r.npy"}, "initialValuesDataType": "FLOAT32"}},
                    "dispatchables": {}, "commands": []})


def test_raw_data_is_whole_values(load_model, tmp_path):
    (tmp_path / "r.bin").write_bytes(bytes(7))
    with pytest.raises(vkdml.InvalidArgumentError, match=r"resources\.r\.initialValues\.sourcePath: found r\.bin \("):
        load_model({"resources": {"r": {"initialValues": {"sourcePath": "r.bin"}, "initialValuesDataType": "FLOAT32"}},
                    "dispatchables": {}, "commands": []})
