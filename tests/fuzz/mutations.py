"""Small ONNX models with recurrent nodes everywhere they may be, and what breaks them: changes of their protobuf and bytes."""

from __future__ import annotations

import copy
import random
from collections.abc import Iterator
from typing import Any

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message
from onnx import ModelProto, numpy_helper, parser

from tests.faces.onnx.support import model, weights

# A graph, and how many gates its weights have
_TEXTS = {
    "GRU": ("g (float[T,B,3] x) => (float[T,1,B,4] z) { c = Constant <value_float=0.5> () a = Mul (x, c) "
            "y = GRU <hidden_size=4, linear_before_reset=1> (a, W, R, B) z = Neg (y) }", 3),
    "LSTM": ('g (float[T,B,3] x) => (float[T,2,B,4] y, float[2,B,4] c) { y, h, c = LSTM <hidden_size=4, direction="bidirectional", '
             'activations=["Sigmoid","Tanh","Tanh","Sigmoid","Tanh","Tanh"], clip=3.0> (x, W, R, B) }', 4),
    "RNN": ("g (float[T,B,3] x, int32[B] lengths) => (float[1,B,4] h) { f = Identity (W) k = Constant <value_ints=[1,4,4]> () "
            "S = Reshape (R, k) e, h = RNN <hidden_size=4> (x, f, S, B, lengths) }", 1),
    "If": ("g (float[T,B,3] x, bool c) => (float[1,B,4] y) { m = Neg (x) y = If (c) < "
           "then_branch = t () => (float[1,B,4] p) { q, p = GRU <hidden_size=4> (m, W, R, B) }, "
           "else_branch = f () => (float[1,B,4] u) { v, u = GRU <hidden_size=4> (x, W, R, B) } > }", 3),
    "Loop": ("g (float[T,B,3] x, float[1,B,4] h) => (float[1,B,4] last, float[N,1,B,4] all) { n = Constant <value_int=3> () "
             "last, all = Loop (n, , h) < body = b (int64 i, bool going, float[1,B,4] s) => (bool on, float[1,B,4] t, float[1,B,4] r) "
             "{ e, t = GRU <hidden_size=4> (x, W, R, B, , s) on = Identity (going) r = Neg (t) } > }", 3),
    "Scan": ("g (float[T,B,3] x, float[1,B,4] h) => (float[1,B,4] last, float[T,1,B,4] all) { "
             "last, all = Scan <num_scan_inputs=1, body = b (float[1,B,4] s, float[B,3] piece) => (float[1,B,4] t, float[1,B,4] r) { "
             "k = Constant <value_ints=[0]> () step = Unsqueeze (piece, k) e, t = GRU <hidden_size=4> (step, W, R, B, , s) "
             "r = Neg (t) } > (h, x) }", 3),
}
_FUNCTION = """<ir_version: 8, opset_import: ["" : 17, "mine" : 1]>
    g (float[T,B,3] x) => (float[T,1,B,4] y) { m = Neg (x) y = mine.layer <lbr=1> (m, W, R) }
    <opset_import: ["" : 17], domain: "mine">
    layer <lbr:int=0> (p, q, r) => (z) { a = Tanh (p) z = GRU <hidden_size=4, linear_before_reset:int=@lbr> (a, q, r) }"""

_NUMBERS = (0, 1, 2, 3, 4, 5, 7, -1, 11, 16, 100, 2**31 - 1, -2**31)
_FLOATS = (0.0, -1.0, 1e38, float("nan"), float("inf"))
_NAMES = ("y (copy 1)", "\x1b[2J\n", "ÿÿ1", r"\xff\xfe\xfd\xfc1", "a\0b", "a\0c", "[vkdml error 1]")  # as_bytes has one become like another
_OPERATORS = ("GRU", "LSTM", "RNN", "If", "Loop", "Scan", "Neg", "Constant", "no", "ai.onnx", "mine")


def models() -> dict[str, ModelProto]:
    """By what is special in them."""
    made = {name: model(text, weights(gates, 2 if name == "LSTM" else 1)) for name, (text, gates) in _TEXTS.items()}
    made["function"] = parser.parse_model(_FUNCTION)
    for name in ("W", "R"):
        made["function"].graph.initializer.append(numpy_helper.from_array(weights()[name], name))
    return made


def as_bytes(proto: ModelProto) -> bytes:
    """The model, with names that protobuf's Python does not take, as they are no UTF-8."""
    return proto.SerializeToString().replace("ÿÿ".encode(), b"\xff\xfe\xfd\xfc")


def mutated(proto: ModelProto, rng: random.Random) -> ModelProto | bytes:
    """A copy with one to three changes of its fields; one in six times of its bytes."""
    result = ModelProto()
    result.CopyFrom(proto)
    if rng.random() < 1 / 6:
        return _with_other_bytes(result.SerializeToString(), rng)
    for _ in range(rng.randint(1, 3)):
        places = list(_places(result))
        _change(*rng.choice(places), places, rng)
    return result


def _places(message: Message) -> Iterator[tuple[Message, FieldDescriptor]]:
    """All fields of a message and of those in it, those that are not given too."""
    for field in message.DESCRIPTOR.fields:
        yield message, field
        if field.message_type is None:
            continue
        if field.is_repeated:
            for inner in getattr(message, field.name):
                yield from _places(inner)
        elif message.HasField(field.name):
            yield from _places(getattr(message, field.name))


def _change(message: Message, field: FieldDescriptor, places: list[tuple[Message, FieldDescriptor]], rng: random.Random) -> None:
    alike = [other for other, _ in places if other.DESCRIPTOR is field.message_type]
    if field.is_repeated:
        _change_list(message, field, alike, places, rng)
    elif message.HasField(field.name) and rng.random() < 0.3:
        message.ClearField(field.name)
    elif field.message_type is None:
        setattr(message, field.name, _value(field, getattr(message, field.name), places, rng))
    elif alike:
        getattr(message, field.name).CopyFrom(copy.deepcopy(rng.choice(alike)))  # deep: it may be what this is a part of


def _change_list(message: Message, field: FieldDescriptor, alike: list[Message], places: list[tuple[Message, FieldDescriptor]],
                 rng: random.Random) -> None:
    old = list(getattr(message, field.name))
    place = rng.randrange(len(old)) if old else 0
    if field.message_type is None:
        other = [*old[:place], _value(field, old[place] if old else None, places, rng), *old[place + 1:]]
    else:
        other = [*old, *rng.sample(alike, min(1, len(alike)))]
    long = old * (1100 if field.message_type is None else 2)
    new = copy.deepcopy(rng.choice((old[:place] + old[place + 1:], old[:place + 1] + old[place:], old[::-1], [], other, long)))
    message.ClearField(field.name)
    getattr(message, field.name).extend(new)


def _value(field: FieldDescriptor, old: Any, places: list[tuple[Message, FieldDescriptor]], rng: random.Random) -> Any:
    if field.type == FieldDescriptor.TYPE_STRING:
        names = [name for message, other in places if other.type == FieldDescriptor.TYPE_STRING
                 for name in (getattr(message, other.name) if other.is_repeated else [getattr(message, other.name)])]
        return rng.choice((*names, *_OPERATORS, *_NAMES, ""))
    if field.type == FieldDescriptor.TYPE_BYTES:
        old = old or b"GRU"
        return rng.choice((b"", old[:-1], old + old, old[::-1], b"\xff" + old, b"forward", b"Relu", old + b"\0x"))
    if field.type == FieldDescriptor.TYPE_ENUM:
        return rng.choice(field.enum_type.values).number
    if field.type in (FieldDescriptor.TYPE_FLOAT, FieldDescriptor.TYPE_DOUBLE):
        return rng.choice(_FLOATS)
    return max(rng.choice(_NUMBERS), 0 if field.type == FieldDescriptor.TYPE_UINT64 else -2**31)


def _with_other_bytes(data: bytes, rng: random.Random) -> bytes:
    place = rng.randrange(len(data))
    end = min(place + rng.randint(1, 8), len(data))
    return rng.choice((data[:place], data[:place] + bytes([data[place] ^ 1 << rng.randrange(8)]) + data[place + 1:],
                       data[:place] + data[end:], data[:end] + data[place:], data[:place] + rng.randbytes(end - place) + data[end:]))
