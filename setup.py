"""The compiled part of the build: the record codec.

It is optional: where no C compiler is, the install goes on and `tidelog.record` uses its pure-Python twin, with one
warning.
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

setup(ext_modules=[Extension("tidelog.record._codec", [str(RECORD / "_codec.pyx")], depends=PARTS, optional=True)])
