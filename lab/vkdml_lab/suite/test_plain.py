"""Tests operators without a time loop, through DirectML's objects, against numpy's float64 results for the same descriptors.

Activations that stand alone are in test_elementwise.py.
"""

from typing import Any

import numpy as np
import pytest

import vkdml as v
from vkdml.faces.directml.compiled_operator import Operator
from vkdml.operators import activations, element_types, plain_problem, table
from vkdml.operators.correctness import differences
from vkdml.planning import plain
from vkdml_lab.suite import recording
from vkdml_lab.suite.guards import guarded
from vkdml_lab.suite.support import assert_close, assert_same, execute, random_activation, random_strides, tensor

D = v.DML_TENSOR_DATA_TYPE
TYPES = [data_type for data_type in D if data_type != D.UNKNOWN]
FLOATS = element_types.IN_DIRECTML
BINARY = {np.add: (v.DML_ELEMENT_WISE_ADD_OPERATOR_DESC, v.DML_ELEMENT_WISE_ADD1_OPERATOR_DESC),
          np.subtract: (v.DML_ELEMENT_WISE_SUBTRACT_OPERATOR_DESC,), np.multiply: (v.DML_ELEMENT_WISE_MULTIPLY_OPERATOR_DESC,)}


def dtype_of(described):
    return np.dtype(D(described.DataType).name.lower())


def make(rng, described, low=0, high=100):
    """Draw a tensor. Returns a flat array with gaps, and a view of it in the tensor's shape. low, high: range of integers."""
    dtype, checked = dtype_of(described), checked_tensor(described)
    count = checked.size_of_elements
    flat = rng.standard_normal(count) if dtype.kind == "f" else rng.integers(low, high, count)
    flat = flat.astype(dtype)
    return flat, checked.view(flat)


def checked_tensor(described):
    whole = table.from_desc(v.DML_ELEMENT_WISE_IDENTITY_OPERATOR_DESC(
        InputTensor=described, OutputTensor=tensor(*described.Sizes, data_type=described.DataType)))
    return whole.tensor("InputTensor")


def run(device, desc, arrays, in_place=None, element=None):
    """Run an operator. Returns its output in the tensor's shape. arrays: flat inputs by field. in_place: input whose buffer
    gets the output. element: type of an activation. Checks gaps, guards, and what Device(verify=...) checks.
    """
    with guarded() as guards:
        operator = Operator(plain_problem.elementwise(desc, element)) if element else device.create_operator(desc)
        compiled = device.compile_operator(operator)
        problem = compiled.problem
        described = problem.tensor("OutputTensor")
        buffers = {field: device.upload(array) for field, array in arrays.items()}
        before = np.full(described.size_in_bytes, 0xA5, np.uint8)
        buffers["OutputTensor"] = buffers[in_place] if in_place else device.upload(before)
        execute(device, compiled, buffers, buffers)
        guards.check()
    memory = buffers["OutputTensor"].download((described.size_in_bytes,), np.uint8)
    dtype = np.dtype(problem.element.name)
    flat = memory[:described.size_of_elements * dtype.itemsize].view(dtype)
    if not in_place:
        is_gap = np.ones(described.size_in_bytes // dtype.itemsize, bool)
        described.view(is_gap)[...] = False
        gaps = memory[:is_gap.size * dtype.itemsize].reshape(-1, dtype.itemsize)[is_gap]
        assert (gaps == 0xA5).all(), "something was written between the output's elements"
        wrong = differences(problem, {**{field: array.view(np.uint8) for field, array in arrays.items()}, "OutputTensor": memory})
        assert not wrong, "the check of calls: " + "; ".join(map(str, wrong))
    recording.RUNNING.can_run_again(lambda: {"OutputTensor": run(device, desc, arrays, in_place, element)})
    return described.view(flat)


def check(problem_name, described, result, expected):
    element = next(row for row in FLOATS if row.data_type == described.DataType)
    assert_close(problem_name, element, [], {"OutputTensor": result}, {"OutputTensor": expected})


def check_same(result, expected):
    assert_same({"OutputTensor": result}, {"OutputTensor": expected})


def described_as(rng, sizes, data_type, is_input=True):
    return tensor(*sizes, data_type=data_type, Strides=random_strides(rng, sizes, is_input) if rng.random() < 0.6 else None)


@pytest.mark.family("each operation in each type, with random layouts", first=12)
@pytest.mark.parametrize("seed", range(48))
def test_arithmetic(device, seed):
    """Sums, differences and products are right with 1 to 8 dimensions and any strides, also broadcasting ones."""
    rng = np.random.default_rng(seed)
    function, descs = list(BINARY.items())[seed % 3]
    desc_type, element = descs[seed // 3 % len(descs)], FLOATS[seed // 2 % 2]
    sizes = tuple(int(size) for size in rng.integers(1, 4, seed % 8 + 1))
    a, b, target = (described_as(rng, sizes, element.data_type, is_input) for is_input in (True, True, False))
    extra = {"FusedActivation": random_activation(rng, element)} if desc_type is v.DML_ELEMENT_WISE_ADD1_OPERATOR_DESC else {}
    desc = desc_type(ATensor=a, BTensor=b, OutputTensor=target, **extra)
    (a_flat, a_view), (b_flat, b_view) = make(rng, a), make(rng, b)
    expected = function(a_view.astype(np.float64), b_view.astype(np.float64))
    if extra:
        expected = activations.fuse("", "", extra["FusedActivation"], element)(expected)
    check("arithmetic", target, run(device, desc, {"ATensor": a_flat, "BTensor": b_flat}), expected)


@pytest.mark.parametrize("field", ["ATensor", "BTensor"])
def test_arithmetic_in_place(device, field):
    described = tensor(5, 7)
    desc = v.DML_ELEMENT_WISE_SUBTRACT_OPERATOR_DESC(ATensor=described, BTensor=described, OutputTensor=described)
    a, b = (make(np.random.default_rng(seed), described)[0] for seed in (0, 1))
    result = run(device, desc, {"ATensor": a, "BTensor": b}, in_place=field)
    check_same(result, (a - b).reshape(5, 7))


@pytest.mark.parametrize("element", FLOATS, ids=lambda element: element.name)
def test_identity_with_scale_and_bias(device, element):
    described = tensor(3, 5, data_type=element.data_type)
    desc = v.DML_ELEMENT_WISE_IDENTITY_OPERATOR_DESC(InputTensor=described, OutputTensor=described,
                                                     ScaleBias=v.DML_SCALE_BIAS(-1.5, 0.25))
    flat, x = make(np.random.default_rng(0), described)
    check("identity", described, run(device, desc, {"InputTensor": flat}), x.astype(np.float64) * -1.5 + 0.25)


GEMMS = [  # batches, M, N, K: near the sizes of tiles and blocks, and 1
    ((), 1, 1, 1), ((), 16, 16, 16), ((), 17, 33, 31), ((2,), 5, 3, 40), ((2, 3), 7, 9, 2), ((1, 2), 33, 1, 17), ((), 64, 65, 48), ((3, 1), 2, 40, 5)]


@pytest.mark.family("each shape with each transform", first=16)
@pytest.mark.parametrize("seed", range(64))
def test_gemm(device, with_profile, seed):
    rng = np.random.default_rng(seed)
    element, (batches, m, n, k) = FLOATS[seed // 16 % 2], GEMMS[seed % 8]
    if seed // 8 % 2:  # run the kernel for GPUs on all devices
        with_profile(prefers_shuffles=False)
    transforms = [v.DML_MATRIX_TRANSFORM(int(bit)) for bit in rng.integers(0, 2, 2)]
    a_sizes, b_sizes = ((*batches, *(matrix[::-1] if transform else matrix)) for matrix, transform in zip(((m, k), (k, n)), transforms))
    a, b, c = (described_as(rng, sizes, element.data_type) for sizes in (a_sizes, b_sizes, (*batches, m, n)))
    target = described_as(rng, (*batches, m, n), element.data_type, is_input=False)
    has_c, is_fused = rng.random(2) < 0.6
    alpha, beta = (float(np.float32(number)) for number in rng.uniform(-2, 2, 2))
    fused = v.DML_ACTIVATION_TANH_OPERATOR_DESC() if is_fused else None
    desc = v.DML_GEMM_OPERATOR_DESC(ATensor=a, BTensor=b, CTensor=c if has_c else None, OutputTensor=target, TransA=transforms[0],
                                    TransB=transforms[1], Alpha=alpha, Beta=beta, FusedActivation=fused)
    arrays = {field: make(rng, described) for field, described in (("ATensor", a), ("BTensor", b), ("CTensor", c))}
    arrays["ATensor"][0][...] *= k ** -0.5  # keeps sums near unit size
    views = {field: view.astype(np.float64) for field, (_, view) in arrays.items()}
    left, right = (np.swapaxes(views[field], -1, -2) if transform else views[field] for field, transform in zip(views, transforms))
    expected = alpha * (left @ right) + (beta * views["CTensor"] if has_c else 0)
    given = {field: flat for field, (flat, _) in arrays.items() if has_c or field != "CTensor"}
    check("GEMM", target, run(device, desc, given), np.tanh(expected) if is_fused else expected)


def test_gemm_adds_to_what_is_there(device):
    """GEMM may overwrite the matrix that it adds (CTensor) with its output."""
    a, b, c = tensor(18, 5), tensor(5, 20), tensor(18, 20)
    desc = v.DML_GEMM_OPERATOR_DESC(ATensor=a, BTensor=b, CTensor=c, OutputTensor=c)
    rng = np.random.default_rng(0)
    arrays = {field: make(rng, described)[0] for field, described in (("ATensor", a), ("BTensor", b), ("CTensor", c))}
    expected = arrays["ATensor"].reshape(18, 5).astype(np.float64) @ arrays["BTensor"].reshape(5, 20) + arrays["CTensor"].reshape(18, 20)
    check("GEMM", c, run(device, desc, arrays, in_place="CTensor"), expected)


def test_gemm_in_several_submissions(device, monkeypatch):
    """A GEMM in several submissions gives the same bits as in one."""
    a, b, c = tensor(70, 50), tensor(50, 66), tensor(70, 66)
    desc = v.DML_GEMM_OPERATOR_DESC(ATensor=a, BTensor=b, OutputTensor=c)
    arrays = {field: make(np.random.default_rng(3), described)[0] for field, described in (("ATensor", a), ("BTensor", b))}
    whole = run(device, desc, arrays)
    monkeypatch.setattr(plain, "_MOST_PRODUCTS", 2 * 32**2 * 50)
    made = device.compile_operator(device.create_operator(desc)).plan
    assert (len(made.execute), made.submissions) == ({16: 4, 32: 5, 64: 6}[4 * made.execute[0].constants.get("LANES", 8)],) * 2  # by a tile's columns
    check_same(run(device, desc, arrays), whole)


@pytest.mark.family("each type, with random layouts", first=11)
@pytest.mark.parametrize("seed", range(33))
def test_slices(device, seed):
    rng = np.random.default_rng(seed)
    data_type = TYPES[seed % len(TYPES)]
    sizes = tuple(int(size) for size in rng.integers(1, 6, seed % 5 + 1 if seed < 30 else 8))
    offsets = [int(rng.integers(0, size)) for size in sizes]
    windows = [int(rng.integers(1, size - offset + 1)) for size, offset in zip(sizes, offsets)]
    steps = [int(rng.integers(1, 4)) for _ in sizes]
    counts = tuple((window - 1) // step + 1 for window, step in zip(windows, steps))
    source = described_as(rng, sizes, data_type)
    target = described_as(rng, counts, data_type, is_input=False)
    flat, view = make(rng, source)
    places = tuple(slice(offset, offset + window, step) for offset, window, step in zip(offsets, windows, steps))
    result = run(device, v.DML_SLICE_OPERATOR_DESC(InputTensor=source, OutputTensor=target, Offsets=offsets, Sizes=counts, Strides=steps),
                 {"InputTensor": flat})
    check_same(result, view[places])
    signs = [int(sign) for sign in rng.choice([-1, 1], len(sizes))]
    fewer = tuple(int(rng.integers(1, count + 1)) for count in counts)  # an output may be missing
    target = described_as(rng, fewer, data_type, is_input=False)
    desc = v.DML_SLICE1_OPERATOR_DESC(InputTensor=source, OutputTensor=target, InputWindowOffsets=offsets, InputWindowSizes=windows,
                                      InputWindowStrides=[step * sign for step, sign in zip(steps, signs)])
    windowed = view[tuple(slice(offset, offset + window) for offset, window in zip(offsets, windows))]
    check_same(run(device, desc, {"InputTensor": flat}),
               windowed[tuple(slice(None, None, step * sign) for step, sign in zip(steps, signs))]
               [tuple(map(slice, fewer))])


@pytest.mark.family("each type, with random layouts", first=11)
@pytest.mark.parametrize("seed", range(22))
def test_identity_and_join(device, seed):
    """Identity and join copy exactly. Join takes up to twenty inputs, more than a kernel can bind."""
    rng = np.random.default_rng(seed)
    data_type, count = TYPES[seed % len(TYPES)], [1, 2, 3, 20][seed % 4]
    sizes = [int(size) for size in rng.integers(1, 5, seed % 8 + 1)]
    axis = int(rng.integers(0, len(sizes)))
    along = rng.integers(1, 4, count)
    sources = [described_as(rng, (*sizes[:axis], int(size), *sizes[axis + 1:]), data_type) for size in along]
    made = [make(rng, source) for source in sources]
    expected = np.concatenate([view for _, view in made], axis)
    target = described_as(rng, expected.shape, data_type, is_input=False)
    desc = v.DML_JOIN_OPERATOR_DESC(InputTensors=sources, OutputTensor=target, Axis=axis)
    arrays = {f"InputTensors[{i}]": flat for i, (flat, _) in enumerate(made)}
    check_same(run(device, desc, arrays), expected)
    target = described_as(rng, sources[0].Sizes, data_type, is_input=False)
    copied = run(device, v.DML_ELEMENT_WISE_IDENTITY_OPERATOR_DESC(InputTensor=sources[0], OutputTensor=target), {"InputTensor": made[0][0]})
    check_same(copied, made[0][1])


def test_copies_keep_all_bits(device):
    """A copy has the same bits as the original, also in the payloads of NaN."""
    words = np.array([0x7F800001, 0xFFC12345, 0x80000000, 0xFFFFFFFF], np.uint32)
    desc = v.DML_ELEMENT_WISE_IDENTITY_OPERATOR_DESC(InputTensor=tensor(4), OutputTensor=tensor(4))
    check_same(run(device, desc, {"InputTensor": words.view(np.float32)}).view(np.uint32), words)


INDEX_TYPES = [D.UINT32, D.INT32, D.UINT64, D.INT64]


@pytest.mark.family("each type with each type of indices", first=8)
@pytest.mark.parametrize("seed", range(44))
def test_gather(device, seed):
    rng = np.random.default_rng(seed)
    data_type, index_type = TYPES[seed % len(TYPES)], INDEX_TYPES[seed % 4]
    rank = seed % 4 + 1
    inner, count = int(rng.integers(1, rank + 1)), int(rng.integers(0, rank + 1))  # dimensions of the data, and of the indices
    while inner - 1 + count > rank:
        count -= 1
    data = tuple(int(size) for size in rng.integers(1, 6, inner))
    index = tuple(int(size) for size in rng.integers(1, 5, count))
    axis = int(rng.integers(0, inner))
    source = described_as(rng, (*[1] * (rank - inner), *data), data_type)
    indices = described_as(rng, (*[1] * (rank - count), *index), index_type)
    flat, view = make(rng, source)
    least = -data[axis] if index_type in (D.INT32, D.INT64) else 0
    index_flat, index_view = make(rng, indices, least, data[axis])
    expected = view.reshape(data).take(index_view.reshape(index).astype(np.int64), axis)
    target = described_as(rng, (*[1] * (rank - expected.ndim), *expected.shape), data_type, is_input=False)
    desc = v.DML_GATHER_OPERATOR_DESC(InputTensor=source, IndicesTensor=indices, OutputTensor=target, Axis=axis + rank - inner,
                                      IndexDimensions=count)
    result = run(device, desc, {"InputTensor": flat, "IndicesTensor": index_flat})
    check_same(result.reshape(expected.shape), expected)


def embedding(index_type, count):
    return v.DML_GATHER_OPERATOR_DESC(InputTensor=tensor(5, 3), IndicesTensor=tensor(1, count, data_type=index_type),
                                      OutputTensor=tensor(count, 3), Axis=0, IndexDimensions=1)


BEYOND = {D.UINT32: [(5, 4), (2**32 - 1, 4)], D.INT32: [(5, 4), (-6, 0), (-2**31, 0), (2**31 - 1, 4)],
          D.UINT64: [(5, 4), (2**32, 4), (2**64 - 1, 4)], D.INT64: [(5, 4), (-6, 0), (2**32 + 1, 4), (-2**32 + 5, 0), (-2**63, 0)]}


@pytest.mark.parametrize("index_type", INDEX_TYPES, ids=lambda index_type: index_type.name)
def test_indices_that_do_not_exist(device, index_type):
    """Wrong indices from the host are refused. Those from the device are found too late, so they read the nearest row."""
    dtype = np.dtype(index_type.name.lower())
    wrong, rows = np.array(BEYOND[index_type], object).T
    count = len(wrong)
    described = tensor(1, count, data_type=index_type)
    copy = device.compile_operator(device.create_operator(v.DML_ELEMENT_WISE_IDENTITY_OPERATOR_DESC(
        InputTensor=described, OutputTensor=described)))
    gather = device.compile_operator(device.create_operator(embedding(index_type, count)))
    table, given = device.upload(np.arange(15, dtype=np.float32)), device.upload(wrong.astype(dtype))
    written, output = device.create_buffer(count * dtype.itemsize), device.create_buffer(count * 12)
    for indices in (written, given):
        recorder = device.create_command_recorder()
        bindings = device.create_binding_table(copy)
        bindings.bind_inputs([given])
        bindings.bind_outputs([written])
        recorder.record_dispatch(copy, bindings)
        bindings.reset(gather)
        bindings.bind_inputs([table, indices])
        bindings.bind_outputs([output])
        recorder.record_dispatch(gather, bindings)
        if indices is written:
            for _ in range(2):
                recorder.execute()
                found = output.download((count, 3))
                check_same(found[:, 0], (3 * rows.astype(np.int64)).astype(np.float32))
        else:
            with pytest.raises(v.InvalidArgumentError, match=rf"IndicesTensor\[0, 0\]: found {wrong[0]}; expected .* to 4"):
                recorder.execute()


@pytest.mark.parametrize("desc", [v.DML_ELEMENT_WISE_IDENTITY_OPERATOR_DESC, v.DML_ACTIVATION_RELU_OPERATOR_DESC])
def test_more_elements_than_workgroups(device, desc):
    """A tensor may have more elements than a dispatch's 65,535 workgroups have invocations."""
    x = np.arange(65535 * 64 + 77, dtype=np.float32)
    described = tensor(x.size)
    check_same(run(device, desc(InputTensor=described, OutputTensor=described), {"InputTensor": x}), x)


A, B, C = tensor(2, 3), tensor(3, 4), tensor(2, 4)
WIDE = tensor(2, 3, data_type=D.INT64)
WRONG: Any = A
ADD, GEMM, JOIN = v.DML_ELEMENT_WISE_ADD_OPERATOR_DESC, v.DML_GEMM_OPERATOR_DESC, v.DML_JOIN_OPERATOR_DESC
SLICE, SLICE1, GATHER = v.DML_SLICE_OPERATOR_DESC, v.DML_SLICE1_OPERATOR_DESC, v.DML_GATHER_OPERATOR_DESC
IDENTITY = v.DML_ELEMENT_WISE_IDENTITY_OPERATOR_DESC
INDICES = tensor(1, 2, data_type=D.UINT32)


@pytest.mark.parametrize(("desc", "message"), [
    (ADD(ATensor=A, BTensor=B, OutputTensor=A), r"BTensor.Sizes: found \(3, 4\); expected \(2, 3\), as ATensor has"),
    (ADD(ATensor=WIDE, BTensor=WIDE, OutputTensor=WIDE), "ATensor.DataType: found DML_TENSOR_DATA_TYPE.INT64; expected FLOAT32 or FLOAT16"),
    (v.DML_ELEMENT_WISE_ADD1_OPERATOR_DESC(ATensor=A, BTensor=A, OutputTensor=A, FusedActivation=WRONG), "FusedActivation: found DML_BUFFER"),
    (IDENTITY(InputTensor=WIDE, OutputTensor=WIDE, ScaleBias=v.DML_SCALE_BIAS(1, 2)), "InputTensor.DataType: found DML_TENSOR_DATA_TYPE.INT64; expected FLOAT32"),
    (IDENTITY(InputTensor=A, OutputTensor=A, ScaleBias=WRONG), "ScaleBias: found DML_BUFFER_TENSOR_DESC; expected DML_SCALE_BIAS or None"),
    (IDENTITY(InputTensor=A, OutputTensor=A, ScaleBias=v.DML_SCALE_BIAS(np.nan, 2)), "ScaleBias.Scale: found nan; expected a finite"),
    (IDENTITY(InputTensor=A, OutputTensor=WIDE), "OutputTensor.DataType: found DML_TENSOR_DATA_TYPE.INT64; expected FLOAT32"),
    (GEMM(ATensor=A, BTensor=C, OutputTensor=C), r"BTensor.Sizes: found \(2, 4\); expected \(3, 4\), for ATensor's \(2, 3\)"),
    (GEMM(ATensor=A, BTensor=B, OutputTensor=A), r"OutputTensor.Sizes: found \(2, 3\); expected \(2, 4\), the product's"),
    (GEMM(ATensor=A, BTensor=B, CTensor=B, OutputTensor=C), r"CTensor.Sizes: found \(3, 4\); expected \(2, 4\)"),
    (GEMM(ATensor=tensor(3), BTensor=B, OutputTensor=C), "ATensor.DimensionCount: found 1; expected 2 to 4"),
    (GEMM(ATensor=A, BTensor=B, OutputTensor=C, TransA=WRONG), "TransA: found DML_BUFFER_TENSOR_DESC.*; expected NONE or TRANSPOSE"),
    (GEMM(ATensor=A, BTensor=B, OutputTensor=C, Alpha=np.inf), "Alpha: found inf; expected a finite float32"),
    (JOIN(InputTensors=[], OutputTensor=A, Axis=0), r"InputTensors: found \(\); expected a list of one tensor or more"),
    (JOIN(InputTensors=[A, B], OutputTensor=tensor(5, 3), Axis=0), r"InputTensors\[1\].Sizes: found \(3, 4\)"),
    (JOIN(InputTensors=[A, A], OutputTensor=tensor(5, 3), Axis=0), r"OutputTensor.Sizes: found \(5, 3\); expected 4 along Axis = 0"),
    (JOIN(InputTensors=[A], OutputTensor=A, Axis=2), "Axis: found 2; expected a whole number from 0 to 1"),
    (JOIN(InputTensors=[A], OutputTensor=A, Axis=0, InputCount=2), "InputCount: found 2; expected 1"),
    (SLICE(InputTensor=A, OutputTensor=A, Offsets=[0, 1], Sizes=[2, 3], Strides=[1, 1]), r"Sizes\[1\]: found 3 from 1 on"),
    (SLICE(InputTensor=A, OutputTensor=A, Offsets=[0], Sizes=[2, 3], Strides=[1, 1]), "Offsets: found 1 numbers; expected 2"),
    (SLICE(InputTensor=A, OutputTensor=A, Offsets=[0, 0], Sizes=[2, 2], Strides=[1, 1]), r"OutputTensor.Sizes: found \(2, 3\); expected \(2, 2\)"),
    (SLICE1(InputTensor=A, OutputTensor=A, InputWindowOffsets=[0, 0], InputWindowSizes=[2, 3], InputWindowStrides=[0, 1]),
     r"InputWindowStrides\[0\]: found 0; expected a number other than 0"),
    (SLICE1(InputTensor=A, OutputTensor=A, InputWindowOffsets=[0, 0], InputWindowSizes=[2, 3], InputWindowStrides=[1, 2]),
     r"OutputTensor.Sizes: found \(2, 3\); expected at most \(2, 2\), the window's"),
    (SLICE1(InputTensor=A, OutputTensor=A, InputWindowOffsets=[1, 0], InputWindowSizes=[2, 3], InputWindowStrides=[1, 1]),
     r"InputWindowSizes\[0\]: found 2 from 1 on; expected a window within the 2 elements"),
    (GATHER(InputTensor=A, IndicesTensor=A, OutputTensor=A, Axis=0, IndexDimensions=1), "IndicesTensor.DataType: found DML_TENSOR_DATA_TYPE.FLOAT32"),
    (GATHER(InputTensor=A, IndicesTensor=INDICES, OutputTensor=A, Axis=2, IndexDimensions=1), "Axis: found 2; expected a whole number"),
    (GATHER(InputTensor=A, IndicesTensor=INDICES, OutputTensor=A, Axis=0, IndexDimensions=0), r"IndicesTensor.Sizes: found \(1, 2\); expected 1"),
    (GATHER(InputTensor=A, IndicesTensor=INDICES, OutputTensor=A, Axis=1, IndexDimensions=1), r"OutputTensor.Sizes: found \(2, 3\); expected \(2, 2\)"),
    (GATHER(InputTensor=A, IndicesTensor=INDICES, OutputTensor=tensor(2, 3, Strides=(1, 1)), Axis=0, IndexDimensions=1), "OutputTensor.Strides"),
])
def test_wrong_descriptors(device, desc, message):
    with pytest.raises(v.InvalidArgumentError, match=message):
        device.create_operator(desc)


@pytest.mark.parametrize("desc", [
    GEMM(ATensor=tensor(3, 3), BTensor=tensor(3, 3), OutputTensor=tensor(3, 3)),
    SLICE(InputTensor=A, OutputTensor=A, Offsets=[0, 0], Sizes=[2, 3], Strides=[1, 1]),
    v.DML_ACTIVATION_RELU_OPERATOR_DESC(A, tensor(2, 3, Strides=(1, 2)))])
def test_only_elementwise_of_one_layout_in_place(device, desc):
    compiled = device.compile_operator(device.create_operator(desc))
    buffers = [device.create_buffer(compiled.problem.tensor(field).size_in_bytes) if compiled.problem.has(field) else None
               for field in compiled.input_fields]
    table = device.create_binding_table(compiled)
    table.bind_inputs(buffers)
    table.bind_outputs([buffers[0]])
    with pytest.raises(v.InvalidArgumentError, match=f"OutputTensor: found memory of {compiled.input_fields[0]} too"):
        device.create_command_recorder().record_dispatch(compiled, table)


def test_wrong_results_are_seen():
    """The check behind Device(verify=...) and the self-test finds one wrong bit of IDENTITY, and a GEMM that is off by 1e-5."""
    problem = table.from_desc(IDENTITY(InputTensor=WIDE, OutputTensor=WIDE))
    x = np.arange(6, dtype=np.int64) + 2**60
    wrong = x.copy()
    wrong[4] += 1
    (difference,) = differences(problem, {"InputTensor": x.view(np.uint8), "OutputTensor": wrong.view(np.uint8)})
    assert (difference.wrong, difference.index) == (1, (1, 1))
    problem = table.from_desc(GEMM(ATensor=A, BTensor=B, OutputTensor=C))
    a, b = np.ones((2, 3), np.float32), np.ones((3, 4), np.float32)
    memory = {"ATensor": a.view(np.uint8).reshape(-1), "BTensor": b.view(np.uint8).reshape(-1)}
    for off, count in ((0, 0), (1e-5, 8)):
        found = (a @ b + np.float32(off)).view(np.uint8).reshape(-1)
        assert sum(difference.wrong for difference in differences(problem, memory | {"OutputTensor": found})) == count
