"""What CheckFeatureSupport answers."""

import numpy as np
import pytest

import vkdml as v
from vkdml.operators.table import check_support

LEVELS, TYPES = v.DML_FEATURE.FEATURE_LEVELS, v.DML_FEATURE.TENSOR_DATA_TYPE_SUPPORT
Level = v.DML_FEATURE_LEVEL


def levels(*requested, count=None):
    return v.DML_FEATURE_QUERY_FEATURE_LEVELS(RequestedFeatureLevels=requested, RequestedFeatureLevelCount=count)


def data_type_of(value):
    return v.DML_FEATURE_QUERY_TENSOR_DATA_TYPE_SUPPORT(value)


def data_type(name):
    return data_type_of(v.DML_TENSOR_DATA_TYPE[name])


@pytest.mark.parametrize(("name", "value"), [
    ("DML_FEATURE_TENSOR_DATA_TYPE_SUPPORT", 0), ("DML_FEATURE_FEATURE_LEVELS", 1), ("DML_FEATURE_LEVEL_1_0", 0x1000),
    ("DML_FEATURE_LEVEL_2_1", 0x2100), ("DML_FEATURE_LEVEL_5_2", 0x5200), ("DML_FEATURE_LEVEL_6_4", 0x6400),
])
def test_values_are_those_of_the_header(name, value):
    assert getattr(v, name) == value


@pytest.mark.parametrize(("requested", "highest"), [
    ([Level.LEVEL_1_0], Level.LEVEL_1_0),
    ([Level.LEVEL_5_1, Level.LEVEL_2_0, Level.LEVEL_1_0], Level.LEVEL_2_0),
    (list(Level), Level.LEVEL_5_0),
])
def test_the_highest_level_of_those_asked_for(requested, highest):
    answer = check_support(LEVELS, levels(*requested))
    assert answer == v.DML_FEATURE_DATA_FEATURE_LEVELS(MaxSupportedFeatureLevel=highest)
    assert isinstance(answer.MaxSupportedFeatureLevel, Level)


@pytest.mark.parametrize("name", ["FLOAT32", "FLOAT16", "UINT32", "FLOAT64", "UNKNOWN"])
def test_types_are_supported_that_an_operator_takes(name):
    answer = check_support(TYPES, data_type(name))
    assert answer == v.DML_FEATURE_DATA_TENSOR_DATA_TYPE_SUPPORT(IsSupported=name != "UNKNOWN")


@pytest.mark.parametrize(("feature", "query", "message"), [
    (7, levels(), "check_feature_support: feature: found 7; expected one of TENSOR_DATA_TYPE_SUPPORT, FEATURE_LEVELS"),
    (TYPES, levels(), "query: found DML_FEATURE_QUERY_FEATURE_LEVELS; expected DML_FEATURE_QUERY_TENSOR_DATA_TYPE_SUPPORT"),
    (LEVELS, levels(Level.LEVEL_6_0), "RequestedFeatureLevels: found .*; expected at least one up to DML_FEATURE_LEVEL_5_0"),
    (LEVELS, levels(), "RequestedFeatureLevels: found"),
    (LEVELS, levels(3), "RequestedFeatureLevels: found"),
    (LEVELS, levels(Level.LEVEL_1_0, count=2), "RequestedFeatureLevelCount: found 2; expected 1"),
    (LEVELS, levels(Level.LEVEL_1_0, count=np.zeros(2)), "RequestedFeatureLevelCount: found .*; expected 1"),
    (TYPES, data_type_of(None), "DataType: found None"),
])
def test_wrong_queries(feature, query, message):
    with pytest.raises(v.InvalidArgumentError, match=message):
        check_support(feature, query)


def test_a_device_answers(device):
    assert device.check_feature_support(TYPES, data_type("FLOAT32")).IsSupported
