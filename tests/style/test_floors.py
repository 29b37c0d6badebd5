"""Imports only point down, and policies cannot see the future."""
from functools import cache
from graphlib import TopologicalSorter

import pytest

from style.sources import CODE, ROOT, files, imports, name

COMPILED_FLOORS = [{"core"}, {"domain"}, {"kv", "collective", "experts", "signals"}, {"latency"},
                   {"scheduling", "routing", "admission", "scaling"}, {"engine"}]
PYTHON_FLOORS = [{"config", "workload"}, {"results"}, {"profiling", "server_line"}, {"study"}]
SEEN_BY_ALL = {"errors"}                                    # top-level modules that import nothing of the project
SEEN_BY_PYTHON_FLOORS = {"core", "domain", "registry"} | SEEN_BY_ALL
FACE_SEEN_BY_STUDIES = {"api", "assembly", "live"}          # a study runs whole experiments
FACE_ROOMS = {"assembly", "extending", "gym", "live", "shell", "testing"}      # between the floors and the command line
POLICY_ROOMS = {"latency", "scheduling", "routing", "admission", "scaling"}         # the engine knows only their base
FUTURE = {"Outcome", "OUTCOME"}                             # true output lengths
MAY_KNOW_THE_FUTURE = {"domain", "engine", "workload", "assembly"}


def may_import():
    """Return the rooms that each room may import."""
    allowed, below = {}, set(SEEN_BY_ALL)
    for floor in COMPILED_FLOORS:
        allowed |= {room: below | {room} for room in floor}
        below = below | floor
    below = set(SEEN_BY_PYTHON_FLOORS)
    for floor in PYTHON_FLOORS:
        allowed |= {room: below | {room} for room in floor}
        below = below | floor
    allowed["study"] |= FACE_SEEN_BY_STUDIES
    return allowed


def room_of(path):
    """Return the room of a file: its folder in simulator/, or its own name in the face of the house."""
    return path.relative_to(ROOT / "simulator").parts[0]


@cache
def house_imports():
    """Return (room of the importer, room of the imported, import) for what the house imports of itself."""
    found = []
    for path in files(*CODE, under="simulator"):
        for link in imports(path):
            parts = (*link.module.split("."), *filter(None, [link.item]))
            if parts[0] == "simulator" and len(parts) > 1:
                found.append((room_of(path), parts[1], link))
    return found


def test_every_room_has_its_floor():
    rooms = {room_of(path) for path in files(*CODE, under="simulator") if path.parent != ROOT / "simulator"}
    assert rooms == set(may_import()) - SEEN_BY_PYTHON_FLOORS - FACE_SEEN_BY_STUDIES | {"core", "domain"} | FACE_ROOMS


def test_assembly_imports_no_study_and_no_command():
    wrong = [f"{name(link.path, link.line)}: imports {link.module}" for importer, imported, link in house_imports()
             if importer == "assembly" and imported in {"study", "profiling", "shell", "cli", "api"}]
    assert not wrong, "\n".join(wrong)


def test_the_import_reader_sees_the_house():
    # latency/base.pxd cimports BatchShape
    assert ("latency", "domain") in {(importer, imported) for importer, imported, _ in house_imports()}


def test_imports_only_point_down():
    allowed = may_import()
    wrong = [f"{name(link.path, link.line)}: {importer} may not import {link.module}"
             for importer, imported, link in house_imports()
             if importer in allowed and imported not in allowed[importer]]
    assert not wrong, "\n".join(wrong)


def test_folders_do_not_import_each_other():
    modules = {".".join(path.relative_to(ROOT).with_suffix("").parts) for path in files(*CODE, under="simulator")}
    imported = {}
    for _, _, link in house_imports():
        folder, target = ".".join(link.path.parent.relative_to(ROOT).parts), f"{link.module}.{link.item}"
        target = (target if target in modules else link.module).rpartition(".")[0]
        if folder != target and "simulator" not in (folder, target):       # the face sees all, all see its errors
            imported.setdefault(folder, set()).add(target)

    assert "simulator.kv" in imported["simulator.scheduling"]
    TopologicalSorter(imported).prepare()       # raises CycleError, with the cycle


def test_the_engine_sees_policies_only_through_their_base():
    wrong = {f"{name(link.path, link.line)}: imports {link.module}" for importer, imported, link in house_imports()
             if importer == "engine" and imported in POLICY_ROOMS
             and not link.module.endswith(("base", "gateway_queue", "scheduling.contract", "routing.door"))}
    assert not wrong, "\n".join(sorted(wrong))


def test_no_policy_can_see_true_output_lengths():
    wrong = [f"{name(link.path, link.line)}: {importer} imports {link.item}"
             for importer, _, link in house_imports()
             if link.item in FUTURE and importer not in MAY_KNOW_THE_FUTURE]
    assert not wrong, "\n".join(wrong)


def test_no_cycle_hides_in_a_function():
    # The face imports late to start quickly; a room that does so hides a cycle.
    wrong = [f"{name(link.path, link.line)}: imports {link.module} inside a function"
             for importer, _, link in house_imports() if link.in_function and importer in may_import()]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("module", sorted(SEEN_BY_ALL))
def test_what_all_may_see_imports_nothing_of_the_house(module):
    assert not [link for importer, _, link in house_imports() if importer == f"{module}.py"]
