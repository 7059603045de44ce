"""DxDispatch's JSON, with comments and trailing commas, and what in it is refused."""

import pytest

import vkdml
from vkdml_lab.dxdispatch.reader import parse


def test_comments_and_trailing_commas(load_model):
    text = """// a model
    {
        "$schema": "./_schema.json", /* of two,
        no: three lines */ "resources": { "a//b /*,]*/": { "initialValuesDataType": "FLOAT32", "initialValues": [1, 2, // two
            /* and */ ], }, "\\\\\\",}": null },
        "dispatchables": {},
        "commands": [{ "type": "print", "resource": "a//b /*,]*/", }, ],
    }"""
    assert load_model(text).resources["a//b /*,]*/"].values.tolist() == [1, 2]


@pytest.mark.parametrize(("text", "message"), [
    ('{ // one\n /* two\n */ "a": 1 2 }', "line 3 column 12"),
    ("[,]", "Expecting value"),
    ("{,}", "property name"),
    ("[1,,]", "Expecting value|trailing comma"),
    ("[1 /* no end", "delimiter"),
    ('{"a": 1, "b": {}, "a": 2}', "'a' is given 2 times"),
    ("[NaN]", "NaN is no JSON"),
    ("[-Infinity]", "-Infinity is no JSON"),
    ("{} {}", "Extra data"),
    ("", "Expecting value"),
])
def test_text_that_is_no_json(load_model, text, message):
    with pytest.raises(ValueError, match=message):
        parse(text)
    with pytest.raises(vkdml.InvalidArgumentError, match=rf"model: .*model\.json: found .*({message}).*; expected a DxDispatch model"):
        load_model(text)
