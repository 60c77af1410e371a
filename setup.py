"""The compiled part of the build: the record codec.

It is optional: where no C compiler is, the install goes on and `tidelog.record` uses its pure-Python twin, with one warning.
"""

from setuptools import Extension, setup

setup(ext_modules=[Extension("tidelog.record._codec", ["src/tidelog/record/_codec.pyx"], optional=True)])
