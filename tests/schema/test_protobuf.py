"""Protobuf: our parser beside protoc, the canonical text, and each kind of change."""

from __future__ import annotations

from base64 import b64encode
from pathlib import Path

import pytest
from google.protobuf import descriptor_pb2 as pb
from grpc_tools import protoc

from proving import proves
from tidelog.errors import InvalidSchema
from tidelog.schema.formats import compatible, parse
from tidelog.schema.protobuf.parse import bare, serialized

EVERYTHING = r"""
// A file with a bit of everything.
syntax = "proto3";
package shop.orders;
import "google/protobuf/timestamp.proto";
import public "google/protobuf/descriptor.proto";
option java_package = "com.example";
option optimize_for = SPEED;

/* Options
   of our own. */
extend google.protobuf.FieldOptions { string label = 50001; int32 weight = 50002; }

message Order {
  option deprecated = true;
  reserved 5, 7 to 9, 100 to max;
  reserved "old", 'older';
  string id = 1 [json_name = "orderId"];
  optional int64 total = 2;
  repeated sint32 packed = 3 [packed = false, deprecated = true];
  map<string, Item> items = 4;
  oneof payment { Card card = 10; bytes cash = 11; }
  .google.protobuf.Timestamp at = 12;
  Status status = 13;
  message Item { double price = 1; Order order = 2; bool option = 3; int32 message = 4; string reserved = 5; }
  message Card { fixed64 number = 1; sfixed32 check = 0x2; }
  enum Status { option allow_alias = true; UNKNOWN = 0; NONE = 0; PAID = 1 [deprecated = true]; LATE = -1; }
}
enum Empty { ZERO = 0; reserved 2 to 3; }
service Orders {
  rpc Get (Order) returns (stream Order.Item);
  rpc Put (stream Order) returns (Order) { option deprecated = true; }
}
"""
OLDER = r"""
syntax = "proto2";
message A {
  required string name = 1 [default = "a\n\"b\x41"];
  optional bytes data = 2 [default = "\001\377"];
  optional Kind kind = 3 [default = TWO];
  optional double d = 4 [default = -1.5e3];
  optional bool b = 5 [default = true];
  extensions 100 to 199;
  enum Kind { ONE = 1; TWO = 2; }
}
extend A { optional int32 more = 100; }
"""
EDITION = """
edition = "2023";
package e;
option features.field_presence = IMPLICIT;
message M { int32 a = 1 [features.field_presence = EXPLICIT]; repeated M more = 2; }
"""


def by_protoc(text: str, folder: Path) -> pb.FileDescriptorProto:
    (folder / "default").write_text(text)
    include = str(Path(protoc.__file__).parent / "_proto")
    arguments = ["protoc", f"-I{folder}", f"-I{include}", f"--descriptor_set_out={folder}/out", str(folder / "default")]
    assert protoc.main(arguments) == 0
    return pb.FileDescriptorSet.FromString((folder / "out").read_bytes()).file[0]


def kinds(old: str, new: str) -> list[str]:
    head = 'syntax = "proto3"; '
    return [reason.kind for reason in compatible(parse("PROTOBUF", head + new, {}), parse("PROTOBUF", head + old, {}))]


@proves("schemas")
@pytest.mark.parametrize("text", [EVERYTHING, OLDER, EDITION], ids=["proto3", "proto2", "edition"])
def test_a_file_means_what_protoc_says_it_means(text: str, tmp_path: Path) -> None:
    expected = bare(by_protoc(text, tmp_path))
    assert str(bare(parse("PROTOBUF", text, {}).model.file)) == str(expected)


@proves("schemas")
@pytest.mark.parametrize("text", [EVERYTHING, OLDER, EDITION], ids=["proto3", "proto2", "edition"])
def test_the_canonical_text_is_text_and_means_the_same(text: str, tmp_path: Path) -> None:
    once = parse("PROTOBUF", text, {})
    again = parse("PROTOBUF", once.text, {})
    assert "message" in once.text
    assert (again.text, again.whole) == (once.text, once.whole)
    assert bare(by_protoc(once.text, tmp_path)) == bare(by_protoc(text, tmp_path))


@proves("schemas")
def test_a_descriptor_and_its_text_are_the_same_schema(tmp_path: Path) -> None:
    sent = b64encode(by_protoc(EVERYTHING, tmp_path).SerializeToString()).decode()
    by_descriptor, by_text = parse("PROTOBUF", sent, {}), parse("PROTOBUF", EVERYTHING, {})
    assert by_descriptor.text == by_text.text
    assert serialized(by_descriptor) == serialized(by_text)


@proves("schemas")
def test_options_that_nobody_here_knows_are_not_lost(tmp_path: Path) -> None:
    text = EVERYTHING.replace("string id = 1 [", 'string id = 1 [(label) = "x", (weight) = 3, ')
    linked = by_protoc(text, tmp_path)  # protoc has put their numbers in place of their names
    kept = parse("PROTOBUF", b64encode(linked.SerializeToString()).decode(), {})
    assert bare(kept.model.file).SerializeToString(deterministic=True) == bare(linked).SerializeToString(
        deterministic=True
    )
    assert parse("PROTOBUF", kept.text, {}).text == kept.text
    assert '(label) = "x", (weight) = 3' in parse("PROTOBUF", text, {}).text


@proves("schemas")
def test_imports_come_from_references() -> None:
    item = 'syntax = "proto3"; package p; message Item { string a = 1; }'
    order = 'syntax = "proto3"; package p; import "item.proto"; message Order { Item item = 1; }'
    changed = item.replace("string a", "int32 a")
    old = parse("PROTOBUF", order, {"item.proto": item})
    assert [reason.kind for reason in compatible(parse("PROTOBUF", order, {"item.proto": changed}), old)] == [
        "FIELD_SCALAR_KIND_CHANGED",
        "FIELD_NAMED_TYPE_CHANGED",
    ]
    with pytest.raises(InvalidSchema, match=r"item\.proto"):
        parse("PROTOBUF", order, {})


FITS = [
    ("message A { int32 a = 1; }", "message A { int64 a = 1; }"),
    ("message A { int32 a = 1; }", "message A { bool renamed = 1; }"),
    ("message A { string a = 1; }", "message A { bytes a = 1; }"),
    ("message A { int32 a = 1; }", "message A { int32 a = 1; string b = 2; }"),
    ("message A { int32 a = 1; string b = 2; }", "message A { int32 a = 1; }"),
    ("message A {}", "message B {} message A {}"),
    ("message A { E e = 1; } enum E { Z = 0; O = 1; }", "message A { int32 e = 1; }"),
    ("message A { int32 a = 1; }", "message A { oneof o { int32 a = 1; string b = 2; } }"),
    ("message A { oneof o { int32 a = 1; string b = 2; } }", "message A { int32 a = 1; string b = 2; }"),
    ("message A { oneof o { int32 a = 1; string b = 2; } }", "message A { }"),
    ("message A { map<string, int32> m = 1; }", "message A { map<string, int64> m = 1; }"),
]
CONFLICTS = [
    ("FIELD_SCALAR_KIND_CHANGED", "message A { int32 a = 1; }", "message A { string a = 1; }"),
    ("FIELD_SCALAR_KIND_CHANGED", "message A { int32 a = 1; }", "message A { sint32 a = 1; }"),
    ("FIELD_KIND_CHANGED", "message A { int32 a = 1; }", "message A { A a = 1; }"),
    ("FIELD_NAMED_TYPE_CHANGED", "message B {} message A { B a = 1; }", "message B {} message A { A a = 1; }"),
    ("FIELD_NUMERIC_LABEL_CHANGED", "message A { optional int32 a = 1; }", "message A { repeated int32 a = 1; }"),
    ("MESSAGE_REMOVED", "message A {} message B {}", "message A {}"),
    ("PACKAGE_CHANGED", "package a; message A {}", "package b; message A {}"),
    (
        "ONEOF_FIELD_REMOVED",
        "message A { oneof o { int32 a = 1; int32 b = 2; } }",
        "message A { oneof o { int32 a = 1; } }",
    ),
    (
        "MULTIPLE_FIELDS_MOVED_TO_ONEOF",
        "message A { int32 a = 1; int32 b = 2; }",
        "message A { oneof o { int32 a = 1; int32 b = 2; } }",
    ),
    (
        "FIELD_MOVED_TO_EXISTING_ONEOF",
        "message A { oneof o { int32 a = 1; } int32 b = 2; }",
        "message A { oneof o { int32 a = 1; int32 b = 2; } }",
    ),
    (
        "FIELD_SCALAR_KIND_CHANGED",
        "message A { map<string, int32> m = 1; }",
        "message A { map<string, string> m = 1; }",
    ),
    (
        "FIELD_SCALAR_KIND_CHANGED",
        "message A { message B { int32 a = 1; } }",
        "message A { message B { string a = 1; } }",
    ),
]


@proves("schemas")
@pytest.mark.parametrize(("old", "new"), FITS)
def test_what_reads_the_same_bytes_fits(old: str, new: str) -> None:
    assert kinds(old, new) == []


@proves("schemas")
@pytest.mark.parametrize(("kind", "old", "new"), CONFLICTS)
def test_what_reads_other_things_from_the_same_bytes_is_named(kind: str, old: str, new: str) -> None:
    assert kind in kinds(old, new)


@proves("schemas")
def test_required_fields_can_neither_come_nor_go() -> None:
    def proto2(fields: str) -> object:
        return parse("PROTOBUF", f'syntax = "proto2"; message A {{ {fields} }}', {})

    with_it, without = proto2("required int32 a = 1;"), proto2("")
    assert [reason.kind for reason in compatible(with_it, without)] == ["REQUIRED_FIELD_ADDED"]  # type: ignore[arg-type]
    assert [reason.kind for reason in compatible(without, with_it)] == ["REQUIRED_FIELD_REMOVED"]  # type: ignore[arg-type]


@proves("schemas")
@pytest.mark.parametrize(
    "text",
    [
        "message A { int32 a = 1; int32 b = 1; }",
        "message A { int32 a = 0; }",
        "message A { Nope a = 1; }",
        "message A { int32 a = 1 }",
        "message A {",
        "message { }",
        "message A { required int32 a = 1; }",
        "message A { map<float, int32> a = 1; }",
        "enum E { ONE = 1; }",
        "import 'nope.proto';",
        "message A { int32 a = 99999999999; }",
        "message A {} message A {}",
        'message A { string a = "x"; }',
    ],
)
def test_what_protoc_refuses_is_refused(text: str) -> None:
    with pytest.raises(InvalidSchema, match=r"."):
        parse("PROTOBUF", 'syntax = "proto3"; ' + text, {})
