"""Parts of DxDispatch's JSON models, written with short names."""

from dataclasses import fields

from vkdml_lab.internals import descs


def short(value):
    if isinstance(value, descs.IntEnum | descs.IntFlag):
        return value.name
    if isinstance(value, tuple):
        return [short(item) for item in value]
    if not hasattr(value, "__dataclass_fields__"):
        return value
    given = {field.name: short(getattr(value, field.name)) for field in fields(value) if getattr(value, field.name) is not None}
    return given | ({"Type": type_name(value)} if isinstance(value, descs.ActivationDesc) else {})


def type_name(desc):
    return type(desc).__name__.removeprefix("DML_").removesuffix("_OPERATOR_DESC")


def array_resource(array):
    return {"initialValuesDataType": array.dtype.name.upper(), "initialValues": array.reshape(-1).tolist()}
