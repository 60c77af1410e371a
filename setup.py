"""The compiled parts of the build: the record codec, and the decoder of values.

They are optional: where no C compiler is, the install goes on. `tidelog.record` then uses its pure-Python twin, with a
warning, and typed values are refused.
"""

from pathlib import Path

from setuptools import Extension, setup

RECORD = Path("src/tidelog/record")
PARTS = [
    str(RECORD / name)
    for name in (
        *("decode.pxi", "encode.pxi", "compact.pxi"),
        *("bytes.h", "crc32c.h", "decode.h", "encode.h", "compact.h"),
    )
]
DECODING = Path("src/tidelog/schema/decoding")
HEADERS = [str(DECODING / name) for name in ("columns.h", "avro.h", "protobuf.h", "json.h")]

setup(
    ext_modules=[
        Extension("tidelog.record._codec", [str(RECORD / "_codec.pyx")], depends=PARTS, optional=True),
        Extension("tidelog.schema.decoding._decode", [str(DECODING / "_decode.pyx")], depends=HEADERS, optional=True),
    ]
)
