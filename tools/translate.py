"""Translate modules to C, where each header is read once for all modules that cimport it.

Cython reads the headers of a module, and theirs, before the module: four fifths of its time, for hundreds of modules
that cimport the same headers. One process cannot keep them, since a module marks in a header the names that it uses.
Here a process reads headers and is forked for the modules that cimport them: each finds the headers as they were read.
The C is that of `cythonize`, with declarations in another order. setup.py uses this.
"""
import gc
import os
import traceback
from collections import Counter
from pathlib import Path

PIECES = 4          # of the work, for each process that runs at once: the last one to end keeps others waiting for less


def translate(tasks, jobs):
    """Run tasks of Cython, tuples of arguments of `cythonize_one`, in at most `jobs` processes at once.

    Raises SystemExit where a module cannot be translated; Cython has printed the reason.
    """
    from Cython.Build.Dependencies import create_dependency_tree

    tree = create_dependency_tree()
    modules = in_order([(headers_of(tree, task[0]), task) for task in tasks])
    size = max(1, -(-len(modules) // (jobs * PIECES)))
    pieces = [modules[first:first + size] for first in range(0, len(modules), size)]
    running, has_failed = set(), False
    while pieces or running:
        if pieces and len(running) < jobs:
            running.add(forked(descend, pieces.pop(0)))
        else:
            process, status = os.wait()
            running.remove(process)
            has_failed |= status != 0
    if has_failed:
        raise SystemExit("a module cannot be translated to C: see above")


def headers_of(tree, source):
    """Return the names of the headers that a source reads, directly or through others, as names of modules."""
    from Cython.Compiler.Main import standard_include_path as own

    paths = (Path(each) for each in tree.all_dependencies(source) if each.endswith(".pxd"))
    names = (path.relative_to(own) if path.is_relative_to(own) else path for path in paths)
    return frozenset(".".join(each.with_suffix("").parts) for each in names if not each.is_absolute())


def in_order(modules, read=frozenset()):
    """Return modules, (headers, task) each, so that modules with the same headers are neighbours."""
    inside, outside = parted(modules, read)
    if len(inside) < 2:
        return modules
    return in_order(inside, read | common(inside)) + in_order(outside, read)


def parted(modules, read):
    """Return the modules that read the commonest of all headers that are not yet read, and the others."""
    counts = Counter(each for headers, _ in modules for each in headers - read)
    header = max(counts, key=lambda each: (counts[each], each), default=None)
    return ([each for each in modules if header in each[0]], [each for each in modules if header not in each[0]])


def common(modules):
    """Return the headers that all modules read."""
    return frozenset.intersection(*(headers for headers, _ in modules))


def descend(modules, context=None, read=frozenset()):
    """Translate modules; return whether all could be.

    The context has the headers `read`, which all modules read. The process is of no use afterwards: a module has left
    its marks in the context.
    """
    if len(modules) == 1:
        return compiled(modules[0][1], context)
    are_well, others = True, modules
    while others:
        inside, outside = parted(others, read)
        if len(inside) > 1:
            are_well &= ended_well(forked(enter, inside, context, read))
        else:
            inside, outside = others[:1], others[1:]
            are_well &= ended_well(forked(descend, inside, context, read))
        others = outside
    return are_well


def enter(modules, context, read):
    """Read the headers that all modules read, and translate the modules; Cython prints errors of headers."""
    from Cython.Compiler import Errors
    from Cython.Compiler.Main import Context

    context = context or Context.from_options(modules[0][1][4])
    Errors.open_listing_file(None)
    for header in sorted(common(modules) - read):
        context.find_module(header)
    return not Errors.get_errors_count() and descend(modules, context, read | common(modules))


def compiled(task, context):
    """Translate a module; the context may have its headers. Cython raises its errors."""
    from Cython.Build.Dependencies import cythonize_one
    from Cython.Compiler import Main

    if context is not None:
        Main.Context.from_options = lambda options: with_options(context, options)
    cythonize_one(*task)
    return True


def with_options(context, options):
    context.options = options
    return context


def forked(work, *args):
    """Return the process that does some work and fails where the work raises or returns False."""
    process = os.fork()
    if process:
        return process
    is_done = False
    try:
        gc.disable()            # all that is made is kept until the end, and looking for garbage takes a seventh
        is_done = work(*args)
    except Exception:
        traceback.print_exc()
    finally:
        os._exit(0 if is_done else 1)


def ended_well(process):
    """Wait until a process ends, and return whether it did its work."""
    return os.waitpid(process, 0)[1] == 0
