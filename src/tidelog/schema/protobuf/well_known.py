"""Files that every Protobuf schema may import without a reference: Google's own, and those of Confluent's clients."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module

from google.protobuf import descriptor_pb2 as pb

# Each after those that it imports.
GOOGLE = {
    f"google/protobuf/{name}.proto": f"google.protobuf.{name}_pb2"
    for name in (
        *("descriptor", "any", "source_context", "type", "api", "duration", "empty", "field_mask", "struct"),
        *("timestamp", "wrappers"),
    )
} | {
    f"google/type/{name}.proto": f"google.type.{name}_pb2"
    for name in (
        *("calendar_period", "color", "date", "datetime", "dayofweek", "expr", "fraction", "interval", "latlng"),
        *("localized_text", "money", "month", "phone_number", "postal_address", "quaternion", "timeofday"),
    )
}
META = """
syntax = "proto3";
package confluent;
import "google/protobuf/descriptor.proto";
message Meta { string doc = 1; map<string, string> params = 2; repeated string tags = 3; }
extend google.protobuf.FileOptions { Meta file_meta = 1088; }
extend google.protobuf.MessageOptions { Meta message_meta = 1088; }
extend google.protobuf.FieldOptions { Meta field_meta = 1088; }
extend google.protobuf.EnumOptions { Meta enum_meta = 1088; }
extend google.protobuf.EnumValueOptions { Meta enum_value_meta = 1088; }
"""
DECIMAL = """
syntax = "proto3";
package confluent.type;
message Decimal { bytes value = 1; uint32 precision = 2; int32 scale = 3; }
"""
CONFLUENT = {
    "confluent/meta.proto": META,
    "confluent/type/decimal.proto": DECIMAL,
    "confluent/types/decimal.proto": DECIMAL,
}
KNOWN = frozenset(GOOGLE) | frozenset(CONFLUENT)


def known_file(name: str) -> pb.FileDescriptorProto:
    if name in GOOGLE:
        made = pb.FileDescriptorProto()
        import_module(GOOGLE[name]).DESCRIPTOR.CopyToProto(made)
        return made
    from tidelog.schema.protobuf.grammar import read

    made = read(CONFLUENT[name])
    made.name = name
    return made


def with_imports(name: str) -> Iterator[pb.FileDescriptorProto]:
    made = known_file(name)
    for dependency in made.dependency:
        yield from with_imports(dependency)
    yield made
