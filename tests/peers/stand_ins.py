# SPDX-License-Identifier: Apache-2.0
"""Stubs for packages that torchtitan's configuration imports without use: data sets,
plots, triton kernels. They save half a gigabyte.
"""
import importlib.abc
import importlib.machinery
import importlib.util
import sys

# Unused module, and the package that imports it.
UNUSED = {"datasets": "datasets", "torch.utils.tensorboard": "tensorboard",
          "torchdata": "torchdata",
          "torchtitan.distributed.minimal_async_ep": "triton"}


class Nothing:
    def __init__(self, *args, **named):
        pass


class StandIns(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def __init__(self, names):
        self.names = names

    def find_spec(self, name, path=None, target=None):
        if not any(f"{name}.".startswith(f"{unused}.")
                   for unused in self.names):
            return None
        return importlib.machinery.ModuleSpec(name, self, is_package=True)

    def create_module(self, spec):
        return None

    def exec_module(self, module):
        module.__version__ = "99"

        def of(name):
            if name.startswith("__"):
                raise AttributeError(name)
            return type(name, (Nothing,), {})
        module.__getattr__ = of


def put_in():
    """Installs stubs for packages that cannot be imported."""
    sys.meta_path.insert(0, StandIns(
        [name for name, package in UNUSED.items()
         if not importlib.util.find_spec(package)]))
