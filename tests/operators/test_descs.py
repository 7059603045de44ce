"""Structures as DirectML.h has them."""

import pickle
from dataclasses import MISSING, fields, is_dataclass

import pytest

import vkdml
from vkdml.operators import table as operators

STRUCTURES = {name: getattr(vkdml, name) for name in vkdml.__all__ if is_dataclass(getattr(vkdml, name)) and name.startswith("DML_")}

# The fields of those that may be given by position, in the header's order. All others take names only.
ORDER = {
    "DML_TENSOR_DESC": "Type Desc",
    "DML_OPERATOR_DESC": "Type Desc",
    "DML_SCALE_BIAS": "Scale Bias",
    "DML_BINDING_PROPERTIES": "RequiredDescriptorCount TemporaryResourceSize PersistentResourceSize",
    "DML_ACTIVATION_CELU_OPERATOR_DESC": "InputTensor OutputTensor Alpha",
    "DML_ACTIVATION_ELU_OPERATOR_DESC": "InputTensor OutputTensor Alpha",
    "DML_ACTIVATION_GELU_OPERATOR_DESC": "InputTensor OutputTensor",
    "DML_ACTIVATION_HARD_SIGMOID_OPERATOR_DESC": "InputTensor OutputTensor Alpha Beta",
    "DML_ACTIVATION_IDENTITY_OPERATOR_DESC": "InputTensor OutputTensor",
    "DML_ACTIVATION_LEAKY_RELU_OPERATOR_DESC": "InputTensor OutputTensor Alpha",
    "DML_ACTIVATION_LINEAR_OPERATOR_DESC": "InputTensor OutputTensor Alpha Beta",
    "DML_ACTIVATION_PARAMETRIC_SOFTPLUS_OPERATOR_DESC": "InputTensor OutputTensor Alpha Beta",
    "DML_ACTIVATION_RELU_OPERATOR_DESC": "InputTensor OutputTensor",
    "DML_ACTIVATION_SCALED_ELU_OPERATOR_DESC": "InputTensor OutputTensor Alpha Gamma",
    "DML_ACTIVATION_SCALED_TANH_OPERATOR_DESC": "InputTensor OutputTensor Alpha Beta",
    "DML_ACTIVATION_SHRINK_OPERATOR_DESC": "InputTensor OutputTensor Bias Threshold",
    "DML_ACTIVATION_SIGMOID_OPERATOR_DESC": "InputTensor OutputTensor",
    "DML_ACTIVATION_SOFTPLUS_OPERATOR_DESC": "InputTensor OutputTensor Steepness",
    "DML_ACTIVATION_SOFTSIGN_OPERATOR_DESC": "InputTensor OutputTensor",
    "DML_ACTIVATION_SWISH_OPERATOR_DESC": "InputTensor OutputTensor SigmoidInputScale",
    "DML_ACTIVATION_HARD_SWISH_OPERATOR_DESC": "InputTensor OutputTensor Alpha Beta",
    "DML_ACTIVATION_TANH_OPERATOR_DESC": "InputTensor OutputTensor",
    "DML_ACTIVATION_THRESHOLDED_RELU_OPERATOR_DESC": "InputTensor OutputTensor Alpha",
    "DML_BUFFER_BINDING": "Buffer Offset SizeInBytes",
    "DML_BINDING_DESC": "Type Desc",
    "DML_BINDING_TABLE_DESC": "Dispatchable CPUDescriptorHandle GPUDescriptorHandle SizeInDescriptors",
    "DML_GRAPH_EDGE_DESC": "Type Desc",
    "DML_GRAPH_NODE_DESC": "Type Desc",
    "DML_OPERATOR_GRAPH_NODE_DESC": "Operator Name",
    "DML_INPUT_GRAPH_EDGE_DESC": "GraphInputIndex ToNodeIndex ToNodeInputIndex Name",
    "DML_OUTPUT_GRAPH_EDGE_DESC": "FromNodeIndex FromNodeOutputIndex GraphOutputIndex Name",
    "DML_INTERMEDIATE_GRAPH_EDGE_DESC": "FromNodeIndex FromNodeOutputIndex ToNodeIndex ToNodeInputIndex Name",
    "DML_FEATURE_DATA_FEATURE_LEVELS": "MaxSupportedFeatureLevel",
    "DML_FEATURE_QUERY_TENSOR_DATA_TYPE_SUPPORT": "DataType",
    "DML_FEATURE_DATA_TENSOR_DATA_TYPE_SUPPORT": "IsSupported",
}


@pytest.mark.parametrize("name", STRUCTURES)
def test_fields_by_position_have_the_headers_order(name):
    by_position = [field.name for field in fields(STRUCTURES[name]) if not field.kw_only]
    assert " ".join(by_position) == ORDER.get(name, "")


@pytest.mark.parametrize("name", STRUCTURES)
def test_wrong_fields_are_told(name):
    structure, needed = STRUCTURES[name], [field.name for field in fields(STRUCTURES[name]) if is_needed(field)]
    names, in_order = [field.name for field in fields(structure)], ORDER.get(name, "").split()
    given = dict.fromkeys(needed)
    misspelled = names[-1].upper() + "S"
    wrong = [(lambda: structure(**given, **{misspelled: 1}),
              f"{name}: {misspelled}: found the name of no field; expected one of {', '.join(names)}"),
             (lambda: structure(*range(20)), f"{name}: fields: found 20 without a name; expected " + (
                 f"at most {len(in_order)}: {', '.join(in_order)}" if in_order else f"names for all: {', '.join(names)}"))]
    if needed and len(names) > 1:
        some = dict.fromkeys(needed[:-1] or [field for field in names if field not in needed][:1])
        wrong.append((lambda: structure(**some), f"{name}: {needed[-1]}: found nothing; expected a value for each of {', '.join(needed)}"))
    if in_order:
        wrong.append((lambda: structure(*in_order, **{in_order[0]: 1}),
                      f"{name}: {in_order[0]}: found a value by place and one by name; expected one"))
    for make, message in wrong:
        for kind in (vkdml.InvalidArgumentError, TypeError):
            with pytest.raises(kind) as error:
                make()
            assert str(error.value) == message
    assert str(error.value) == str(pickle.loads(pickle.dumps(error.value)))
    assert pickle.loads(pickle.dumps(structure(**given))) == structure(**given)


@pytest.mark.parametrize("name", STRUCTURES)
def test_an_empty_structure_can_be_filled(name):
    structure = STRUCTURES[name]
    given = {field.name: [1, 2] if field.name in LISTS else 7 for field in fields(structure)}
    empty = structure()
    for field in fields(structure):
        assert getattr(empty, field.name) == (None if is_needed(field) else field.default)
    for field, value in given.items():
        setattr(empty, field, value)
    assert empty == structure(**given)
    assert hash(empty) == hash(structure(**given)) or not LISTS & set(given)
    with pytest.raises(vkdml.InvalidArgumentError, match=f"{name}: {fields(structure)[0].name}S: found the name of no field; expected"):
        setattr(empty, fields(structure)[0].name + "S", 1)


LISTS = {"Sizes", "Strides", "Offsets", "ActivationDescs", "InputTensors", "InputWindowOffsets", "InputWindowSizes", "InputWindowStrides"}


@pytest.mark.parametrize("structure", operators.CHECKS, ids=lambda structure: structure.__name__)
def test_what_an_empty_structure_lacks_is_told(structure):
    with pytest.raises(vkdml.InvalidArgumentError, match=f"^{structure.__name__}: [AIO][a-z]*Tensors?: found None"):
        operators.from_desc(structure())


def is_needed(field):
    return field.default is MISSING and field.default_factory is MISSING


def test_an_error_of_a_value_is_its_own():
    class Wrong:
        def __iter__(self):
            raise KeyError("of the value's own")

    with pytest.raises(KeyError):
        vkdml.DML_BUFFER_TENSOR_DESC(DataType=vkdml.DML_TENSOR_DATA_TYPE.FLOAT32, Sizes=Wrong())


# All fields of the plain operators' structures, and the numbers of their types
HEADER = {
    "ELEMENT_WISE_IDENTITY": "InputTensor OutputTensor ScaleBias",
    "ELEMENT_WISE_ADD": "ATensor BTensor OutputTensor",
    "ELEMENT_WISE_ADD1": "ATensor BTensor OutputTensor FusedActivation",
    "ELEMENT_WISE_SUBTRACT": "ATensor BTensor OutputTensor",
    "ELEMENT_WISE_MULTIPLY": "ATensor BTensor OutputTensor",
    "GEMM": "ATensor BTensor CTensor OutputTensor TransA TransB Alpha Beta FusedActivation",
    "JOIN": "InputCount InputTensors OutputTensor Axis",
    "SLICE": "InputTensor OutputTensor DimensionCount Offsets Sizes Strides",
    "SLICE1": "InputTensor OutputTensor DimensionCount InputWindowOffsets InputWindowSizes InputWindowStrides",
    "GATHER": "InputTensor IndicesTensor OutputTensor Axis IndexDimensions",
}
NUMBERS = {"ELEMENT_WISE_IDENTITY": 1, "ELEMENT_WISE_ADD": 4, "ELEMENT_WISE_MULTIPLY": 24, "ELEMENT_WISE_SUBTRACT": 30, "GEMM": 54,
           "SLICE": 60, "JOIN": 63, "GATHER": 67, "ELEMENT_WISE_ADD1": 89, "SLICE1": 111}


@pytest.mark.parametrize("name", HEADER)
def test_plain_operators_are_those_of_the_header(name):
    assert " ".join(field.name for field in fields(STRUCTURES[f"DML_{name}_OPERATOR_DESC"])) == HEADER[name]
    assert getattr(vkdml, f"DML_OPERATOR_{name}") == NUMBERS[name]
