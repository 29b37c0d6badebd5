"""The page of each folder of the package names all that lies in the folder."""
import re

from style.sources import CODE, ROOT, files, folders, name

FOLDERS = [folder for folder in folders() if ROOT / "simulator" in (folder, *folder.parents)]


def own_names(folder):
    """Return the names of a folder's modules and folders, without endings."""
    modules = {path.stem for path in files(*CODE, under=name(folder)) if path.parent == folder}
    return (modules | {each.name for each in FOLDERS if each.parent == folder}) - {"__init__", "__main__"}


def page_of(folder):
    """Return the page that describes a folder: its own, or that of the folder above."""
    return next(page for each in (folder, *folder.parents) if (page := each / "README.md").exists())


def test_pages_name_every_module():
    missing = [f"{name(page_of(folder))}: {each}" for folder in FOLDERS
               for each in sorted(own_names(folder) - set(re.findall(r"\w+", page_of(folder).read_text())))]

    assert not missing, "\n".join(missing)
