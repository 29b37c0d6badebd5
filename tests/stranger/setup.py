from Cython.Build import cythonize
from setuptools import setup

setup(ext_modules=cythonize(["stranger_lab/router.pyx"], language_level=3))
