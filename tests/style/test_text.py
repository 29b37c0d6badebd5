"""Clean text, and documents that keep pace with the tree."""
import re

import simulator
from style.sources import CODE, FOLDERS, ROOT, TEXT, files, folders, name

LEFT_OPEN = re.compile("TO" "DO|FIX" "ME|X" "XX|HA" "CK")
OF_ONE_MACHINE = re.compile(r"/(?:work|tmp|home|root)/\w")
PAGES = ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "LICENSE")


def lines(*suffixes):
    """Yield path, line number and line of the project's text files."""
    for path in files(*suffixes):
        if path.suffix in TEXT:
            for number, line in enumerate(path.read_text().splitlines(), 1):
                yield path, number, line


def test_no_tabs_and_no_trailing_blanks():
    wrong = [f"{name(path, number)}: tab or trailing blank" for path, number, line in lines("")
             if path.name != "LICENSE" and ("\t" in line or line != line.rstrip())]
    assert not wrong, "\n".join(wrong)


def test_files_end_with_one_newline():
    wrong = [name(path) for path in files("") if path.suffix in TEXT and (text := path.read_text())
             and (not text.endswith("\n") or text.endswith("\n\n") or "\r" in text)]
    assert not wrong, "\n".join(wrong)


def test_nothing_is_left_open():
    wrong = [f"{name(path, number)}: {line.strip()}"
             for path, number, line in lines(*CODE, ".toml") if LEFT_OPEN.search(line)]
    assert not wrong, "\n".join(wrong)


def test_no_path_of_one_machine():
    wrong = [f"{name(path, number)}: {line.strip()}" for path, number, line in lines(*CODE, ".md", ".toml")
             if OF_ONE_MACHINE.search(line) and path.name != "test_text.py"]
    assert not wrong, "\n".join(wrong)


def test_every_folder_opens_with_a_readme():
    # A folder inside may be described on its parent's page instead.
    wrong = [name(folder) for folder in folders() if not folder.name.startswith(".")
             and not (folder / "README.md").exists() and not is_named(folder, folder.parent / "README.md")]
    assert not wrong, "\n".join(wrong)


def is_named(folder, page):
    return folder.parent != ROOT and page.exists() and f"`{folder.name}/`" in page.read_text()


def test_the_map_of_the_architecture_is_the_house():
    page = (ROOT / "docs/architecture.md").read_text()
    rooms = [path.name for path in (ROOT / "simulator").iterdir() if (path / "__init__.py").exists()]
    missing = [room for room in rooms if not re.search(rf"^ *{room}/ ", page, re.MULTILINE)]
    assert not missing


def test_files_named_in_the_pages_exist():
    # Paths in backquotes that begin with a folder of the project.
    wrong = []
    for path in [ROOT / page for page in PAGES]:
        for number, line in enumerate(path.read_text().splitlines(), 1):
            targets = re.findall(rf"`((?:{'|'.join(map(re.escape, FOLDERS))})/[\w./-]*)`", line)
            wrong += [f"{name(path, number)}: {target}" for target in targets if not (ROOT / target).exists()]
    assert not wrong, "\n".join(wrong)


def test_the_readme_gives_two_commands_to_copy():
    # .ci/run runs what stands in its bash blocks
    blocks = re.findall(r"^```bash\n(.*?)^```$", (ROOT / "README.md").read_text(), re.MULTILINE | re.DOTALL)
    assert [block.count("\n") for block in blocks] == [1, 1]


def test_the_changelog_knows_the_version():
    assert f"## [{simulator.__version__}]" in (ROOT / "CHANGELOG.md").read_text()


def test_every_experiment_says_what_it_shows():
    wrong = [name(path) for path in files(".toml", under="configs") if not path.read_text().startswith("# ")]
    assert not wrong, "\n".join(wrong)
