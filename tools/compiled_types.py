"""Asks mypyc what it has against the modules that it compiles, without a C compiler.

`python tools/compiled_types.py` takes 20 seconds; the build asks the same, and takes minutes. mypyc
is stricter than mypy: it refuses a method that takes `int` where its base class has `i64`.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from pathlib import Path
from types import ModuleType

from mypy.fscache import FileSystemCache
from mypyc.build import get_mypy_config
from mypyc.codegen.emitmodule import compile_modules_to_ir, parse_and_typecheck
from mypyc.errors import Errors
from mypyc.irbuild.mapper import Mapper
from mypyc.options import CompilerOptions

ROOT = Path(__file__).resolve().parent.parent


def node_setup() -> ModuleType:
    """Load the build of the node, which names what is compiled."""
    spec = importlib.util.spec_from_file_location("node_setup", ROOT / "node" / "setup.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def complaints() -> list[str]:
    """Run mypyc as far as its own code, and return what it says."""
    os.chdir(ROOT)  # the build's paths begin here
    options, files = CompilerOptions(multi_file=True), FileSystemCache()
    words = ["--config-file=pyproject.toml", *node_setup().compiled_files()]
    sources, everything, config = get_mypy_config(words, None, options, files)
    groups = [(sources, "compiled")]
    result = parse_and_typecheck(everything, config, options, groups, files)
    try:
        if result.errors:
            return result.errors
        errors = Errors(config)
        mapper = Mapper({source.module: "compiled" for source in sources})
        compile_modules_to_ir(result, mapper, options, errors)
        return errors.new_messages() if errors.num_errors else []
    finally:
        result.manager.metastore.close()


if __name__ == "__main__":
    said = complaints()
    print("\n".join(said) or "mypyc takes all that is to be compiled")
    sys.exit(bool(said))
