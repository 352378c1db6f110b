"""A pipeline in a Python file has the keys of a YAML file, views that are functions, and the same errors."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from omnigraph.errors import InvalidInput
from omnigraph.pipelines.pipeline_file import Pipeline, read_pipeline

GUIDE = Path(__file__).parents[2] / "docs" / "guide" / "pipelines.md"

FILE = """
from helpers import PATH

def known(customers, spark):
    return customers.selectExpr("id as code")

sources = {"customers": {"format": "csv", "path": PATH}}
pipeline = {
    "graph": "${STORE}/shop.omni",
    "sources": sources,
    "views": {
        "known": known,
        "named": "select code from known",
    },
    "nodes": {"Customer": {"from": "named", "dedup": {"keys": ("code",)}}},
    "audits": [dict(
        diff="main",
        expect="deleted() = 0")],
}
""".lstrip()


def blocks(language: str, start: str) -> list[str]:
    """The code blocks of the guide that begin with a line."""
    found = re.findall(
        rf"^```{language}\n(.*?)^```", GUIDE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL
    )
    return [block for block in found if block.startswith(start)]


def read(folder: Path, text: str) -> Pipeline:
    (folder / "helpers.py").write_text("PATH = 'in/*.csv'\n", encoding="utf-8")
    (folder / "shop.py").write_text(text, encoding="utf-8")
    return read_pipeline(folder / "shop.py", {"STORE": "s3://bucket"})


def test_python_file_defines_a_pipeline_with_functions_as_views(tmp_path: Path) -> None:
    pipeline = read(tmp_path, FILE)
    assert pipeline.name == "shop"
    assert pipeline.definition.graph == "s3://bucket/shop.omni"
    assert pipeline.view_order == ("known", "named")
    assert pipeline.inputs["named"] == {"customers"}
    assert pipeline.definition.nodes["Customer"].dedup is not None


def test_python_file_digest_depends_on_its_text_alone(tmp_path: Path) -> None:
    first = read(tmp_path, FILE).digest
    assert read(tmp_path, FILE).digest == first
    assert read(tmp_path, FILE.replace("id as code", "code")).digest != first


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('"path": PATH', '"paht": PATH', "line 6: sources.customers.path: this key is missing"),
        (
            '"from": "named"',
            '"from": "names"',
            "line 14: nodes.Customer.from: unknown source or view 'names'",
        ),
        ("deleted() = 0", "deleted(", "line 17: audits.0.expect: cannot parse the condition"),
        ("known(customers", "known(custmers", "line 11: views.known: unknown source or view 'custmers'; did"),
        ("import PATH", "import PATHS", "line 1: ImportError: cannot import name 'PATHS'"),
        ("sources = {", "sources = {{", "line 6: invalid Python: "),
        ("pipeline = {", "pipelines = {", "the file defines no `pipeline`"),
        ("known(customers, spark):", "known(named):", "the view reads itself: known -> named -> known"),
    ],
)
def test_python_file_mistake_is_reported_with_its_line(
    tmp_path: Path, old: str, new: str, message: str
) -> None:
    assert old in FILE
    with pytest.raises(InvalidInput) as raised:
        read(tmp_path, FILE.replace(old, new))
    assert message in str(raised.value)
    assert str(raised.value).startswith(f"{tmp_path / 'shop.py'}: ")


def test_files_of_the_guide_are_valid(tmp_path: Path) -> None:
    (python,) = blocks("python", "# shop.py")
    (tmp_path / "shop.py").write_text(python, encoding="utf-8")
    assert read_pipeline(tmp_path / "shop.py", {"STORE": "x"}).inputs["named"] == {"customers"}
    (text,) = blocks("yaml", "name: shop")
    (tests,) = blocks("yaml", "tests:")
    (tmp_path / "shop.yaml").write_text(text + tests, encoding="utf-8")
    assert read_pipeline(tmp_path / "shop.yaml", {"PG_URL": "jdbc:x"}).used_sources == {
        "customers",
        "products",
        "orders",
    }
