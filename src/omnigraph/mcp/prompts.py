"""The prompts of the server, which describe how to change a graph: branch, review, merge."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from omnigraph.errors import InvalidInput


@dataclass(frozen=True)
class PromptText:
    """A prompt. `arguments` maps the names of its arguments, all required, to their descriptions."""

    name: str
    description: str
    arguments: Mapping[str, str]
    text: str

    def fill(self, values: Mapping[str, str]) -> str:
        """Return the text with the values of its arguments. Raises `InvalidInput` if one is missing."""
        missing = [name for name in self.arguments if name not in values]
        if missing:
            raise InvalidInput(f"the prompt `{self.name}` needs the argument `{missing[0]}`")
        return self.text.format_map({name: values[name] for name in self.arguments})


PROMPTS: Final = (
    PromptText(
        "change_with_review",
        "Change the graph on a branch, review the difference, and merge it.",
        {"task": "The change to make.", "branch": "Name of the branch for the change."},
        """\
Make this change to the graph: {task}

Work in this order:
1. Read the schema with get_schema, and the data that the change concerns with query.
2. Create the branch `{branch}` from main with create_branch. main stays as it is until the merge.
3. Write on `{branch}` with mutate or load_records. Give every commit a message. A failed write changes nothing; \
read its error, correct the text and try again.
4. Review the result: diff_branches with before `main` and after `{branch}`. Check that it has every change \
that was asked for and no other. Correct mistakes on the branch and review again.
5. Call merge_branch with source `{branch}` and dry_run true. Show the user the changes by type and any conflicts, \
and ask for approval.
6. After approval call merge_branch without dry_run.
""",
    ),
    PromptText(
        "resolve_merge_conflicts",
        "Settle the conflicts of a merge one by one.",
        {"source": "Branch with the changes.", "into": "Branch that receives the changes."},
        """\
Merge the branch `{source}` into `{into}` and settle the conflicts.

1. Call merge_branch with source `{source}`, into `{into}` and dry_run true. `conflicts` lists each conflict \
with its id, the entity and property, and the values `base`, `ours` (of `{into}`) and `theirs` (of `{source}`).
2. Find out why each side changed the value: list_commits of both branches, and query for related data.
3. Propose one resolution for each conflict id: "ours", "theirs" or {{"value": ...}}. Show the user the list \
with the reasons, and ask for approval.
4. After approval call merge_branch with `resolve` as an object from conflict id to resolution. \
Do not use "*" or a side for all conflicts unless the user asked for it.
""",
    ),
)
