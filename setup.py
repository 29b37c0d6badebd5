"""Build the compiled modules in one of the modes below, SIM_BUILD=release|debug|coverage|sanitize."""
import os
import shutil
import sys
import sysconfig
from copy import copy
from fnmatch import fnmatchcase
from pathlib import Path
from zlib import crc32

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext
from setuptools.command.build_py import build_py
from setuptools.modified import newer_group

ROOT = Path(__file__).resolve().parent
sys.path.append(str(ROOT / "tools"))
from translate import translate  # noqa: E402

MODE = os.environ.get("SIM_BUILD", "release")
EVERYTHING = ("simulator/**/*.pyx", "tests/support/*.pyx")     # the latter in place only: a wheel carries no tests
ONLY = os.environ.get("SIM_ONLY")                           # a glob: build these modules alone
JOBS = os.cpu_count() or 1
STRICT = MODE != "release" or bool(os.environ.get("CI"))    # warnings are errors, but not on a user's unknown compiler
SHARED = "simulator._cython"        # Cython's helpers, built once: its memory views alone are 15,000 lines of C
# Work at each iteration, and have fewer instructions for it; signals, collectives and overheads have as many without.
# All else works at requests and at rarer events. gcc takes half as long without these limits.
LOOP = ("simulator.core.*", "simulator.engine.cluster", "simulator.engine.fleet.*", "simulator.engine.output.*",
        "simulator.engine.replica.*", "simulator.kv.*", "simulator.latency.[!o]*", "simulator.latency.operators.*",
        "simulator.scheduling.*", "simulator.workload.*")
FACTS = ("models", "hardware", "configs", "engines")                   # travel in the wheel as simulator/_facts/<name>

DIRECTIVES = {
    "language_level": 3,
    "cdivision": True,
    "wraparound": False,
    "boundscheck": False,
    "initializedcheck": False,
    "nonecheck": False,
    "linetrace": False,
    "freethreading_compatible": True,
    "embedsignature": True,
}
# Left out: nonecheck refuses `self.x += 1` without the GIL, wraparound lets a negative index pass, overflowcheck
# refuses pointer differences and the defined wrap of unsigned hashes (UBSan finds the signed overflows).
CHECKS = {"boundscheck": True, "initializedcheck": True}

# -ffp-contract=off and no -march=native: the same doubles on every machine. Not warned of: Cython's helpers that go
# unused; gcc's guess about variables that are filled in through a pointer; that clang has not this and that flag.
QUIET = ["-Wno-unused-function", "-Wno-ignored-optimization-argument", "-Wno-maybe-uninitialized",
         "-Wno-unknown-warning-option"]
FLAGS = ["-ffp-contract=off", "-Wall", *QUIET, *["-Werror"] * STRICT]
TRACEBACK = ["-include", "simulator/core/traceback.h"]
SANITIZERS = ["-fsanitize=address,undefined", "-fno-sanitize-recover=undefined"]
MODES = {  # changes to DIRECTIVES, macros, flags after FLAGS, linker flags
    # Python's own flags ask for -g: a third of gcc's time.
    "release": ({}, [], ["-g0", *TRACEBACK], []),
    "debug": (CHECKS, [("SIM_DEBUG", "1")], ["-g1", "-UNDEBUG"], []),
    "coverage": ({"linetrace": True}, [("CYTHON_TRACE_NOGIL", "1")], ["-O1"], []),
    "sanitize": ({}, [("SIM_DEBUG", "1")], ["-O1", "-g", "-UNDEBUG", "-fno-wrapv", *SANITIZERS], SANITIZERS),
}
# Of the loop, and of all else. gcc takes small functions with several callers into these only up to limits: without
# limits, the loop has 4 % fewer instructions. clang knows none.
OPTIMISED = {"release": (["-O3", "-finline-limit=2000", "--param", "inline-unit-growth=100"], ["-O2"]),
             "debug": (["-O1"], ["-O0"])}


def optimised(name):
    """Return the flags by which gcc or clang optimises a module, by its name."""
    if MODE not in OPTIMISED:
        return []
    loop, others = OPTIMISED[MODE]
    return loop if any(fnmatchcase(name, each) for each in LOOP) else others


class BuildExtensions(build_ext):
    """Generate C when building starts, not before: metadata and source distributions need no compiler.

    One build serves all. C and objects lie in folders named after the recipe, wherever the modules go: in place, into a
    wheel, or where pip wants them. What was compiled once is only linked again.
    """

    def initialize_options(self):
        super().initialize_options()
        self.parallel = JOBS

    def finalize_options(self):
        super().finalize_options()
        if not self.inplace:
            self.extensions = [each for each in self.extensions if each.name.startswith("simulator.")]
            shutil.rmtree(Path(self.build_lib, "tests"), ignore_errors=True)    # an earlier build in place was here

    def run(self):
        from Cython.Build import Dependencies
        from Cython.Compiler import Options

        self.leave_out_the_age_of_cython()
        Options.warning_errors = STRICT
        changes, macros, flags, link_flags = MODES[MODE]
        directives = DIRECTIVES | changes
        stamp, key = self.stamp((MODE, directives, macros, FLAGS + flags, link_flags, OPTIMISED, LOOP))
        # Cython regenerates C when sources change, not when directives do: a folder for each set of them.
        # Coverage reads the generated C beside its source.
        folder = None if MODE == "coverage" else f"build/cython-{MODE}-{key}"
        self.refuse_old_neighbours(Path(folder or "."))
        tasks, one = [], Dependencies.cythonize_one
        Dependencies.cythonize_one = lambda *task: tasks.append(task)
        compiled = Dependencies.cythonize(self.extensions, compiler_directives=directives, build_dir=folder,
                                          shared_utility_qualified_name=SHARED)
        Dependencies.cythonize_one = one
        translate(tasks, JOBS)
        for extension, generated in zip(self.extensions, compiled, strict=True):
            extension.sources, extension.depends = generated.sources, [stamp]
            extension.define_macros = macros
            extension.extra_compile_args = FLAGS + flags + optimised(extension.name)
            extension.extra_link_args = link_flags
        # The largest first: a core that is left with one of them keeps the others waiting.
        self.extensions.sort(key=lambda each: -Path(each.sources[0]).stat().st_size)
        self.build_temp = f"build/objects-{MODE}-{key}"     # pip's would be a temporary folder
        super().run()

    def build_extension(self, extension):
        """Build one module from the object file that exists, unless its C is newer."""
        objects = self.compiler.object_filenames(extension.sources, output_dir=self.build_temp)
        if not self.force and not newer_group(extension.sources, objects[0]):
            extension = copy(extension)
            extension.sources, extension.extra_objects = [], objects
            extension.depends = [*extension.depends, *objects]
        super().build_extension(extension)

    @staticmethod
    def leave_out_the_age_of_cython():
        """Take Cython's own headers for old: pip's Cython and the environment's were unpacked at different times.

        C of another version of Cython is generated anew in any case.
        """
        import Cython
        from Cython.Build.Dependencies import DependencyTree

        own, time_of = os.path.dirname(os.path.abspath(Cython.__file__)), DependencyTree.timestamp
        DependencyTree.timestamp = lambda tree, name: (
            0 if os.path.abspath(name).startswith(own) else time_of(tree, name))

    def refuse_old_neighbours(self, folder):
        """Refuse SIM_ONLY where a module beside has C that is older than a header it reads: it would crash."""
        from Cython.Build.Dependencies import create_dependency_tree

        chosen, old = {source for each in self.extensions for source in each.sources}, []
        tree = create_dependency_tree()
        for source in map(str, sources(EVERYTHING) if ONLY else ()):
            generated = (folder / source).with_suffix(".c")
            if source not in chosen and generated.exists():
                headers = (each for each in tree.all_dependencies(source) if each.endswith(".pxd"))
                if any(tree.timestamp(each) > generated.stat().st_mtime for each in headers):
                    old.append(source)
        if old:
            raise SystemExit(f'SIM_ONLY: "{ONLY}" leaves out modules that read changed headers and would crash beside '
                             f'it: {", ".join(old)}; build without SIM_ONLY')

    @staticmethod
    def stamp(recipe):
        """Write how modules are built to a file, touched only when it changes: what is older is then rebuilt."""
        surroundings = [(name, os.environ.get(name)) for name in ("CC", "CFLAGS", "LDFLAGS")]
        text = repr((recipe, surroundings, sysconfig.get_config_var("EXT_SUFFIX"))) + "\n"
        path = Path("build", "recipe")
        if not path.exists() or path.read_text() != text:
            path.parent.mkdir(exist_ok=True)
            path.write_text(text)
        return str(path), f"{crc32(text.encode()):08x}"


class BuildPython(build_py):
    """Ship facts and examples inside the package; a checkout reads them where they are."""

    def run(self):
        super().run()
        for name in () if self.editable_mode else FACTS:
            target = Path(self.build_lib, "simulator", "_facts", name)
            shutil.rmtree(target, ignore_errors=True)
            shutil.copytree(ROOT / name, target, ignore=self.left_out)

    @staticmethod
    def left_out(folder, names):
        """Return what stays out of the wheel: caches, and what a reader has put beside the experiments."""
        own = {name for name in names if name in ("data", "reproduce", "world") or name.endswith((".toml", ".md"))}
        return set(names) - own if Path(folder) == ROOT / "configs" else {"__pycache__"} & set(names)


def sources(globs):
    """Return the sources that match any of the globs, in order."""
    return sorted(path.relative_to(ROOT) for each in globs for path in ROOT.glob(each))


def extensions():
    """Return the modules to build: all of them, or those that match SIM_ONLY."""
    if MODE not in MODES:
        raise SystemExit(f'SIM_BUILD: no build mode "{MODE}"; choose one of {", ".join(MODES)}')
    chosen = [source for source in sources((ONLY,) if ONLY else EVERYTHING) if source.suffix == ".pyx"]
    if not chosen:
        raise SystemExit(f'SIM_ONLY: no .pyx file matches "{ONLY}" from the root of the repository on')
    modules = [Extension(".".join(source.with_suffix("").parts), [str(source)]) for source in chosen]
    return [*modules, Extension(SHARED, [SHARED.replace(".", "/") + ".c"])]


if __name__ == "__main__":
    setup(ext_modules=extensions(), cmdclass={"build_ext": BuildExtensions, "build_py": BuildPython})
