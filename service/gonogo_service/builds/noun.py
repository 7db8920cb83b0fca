"""Builds as the API and the command know them."""

from __future__ import annotations

from pydantic import Field

from gonogo.cli.kit.noun import Noun, Verb
from gonogo.spec.builds import DeclaredBuild
from gonogo_service.kit.strict import NAME, Strict


class BuildIn(DeclaredBuild, Strict):
    """A build to register."""

    name: str = Field(pattern=NAME, max_length=200, description="Its name: kernels-5f3a9c2")
    branch: str = Field(
        "default", pattern=NAME, max_length=200, description="The series that it is part of"
    )
    sequence: int | None = Field(
        None, ge=0, le=2**53, description="Its place in the branch; null: after all others"
    )
    commit: str | None = Field(
        None, pattern=NAME, max_length=200, description="The commit that it was made of"
    )
    author: str | None = Field(None, max_length=200, description="The author of that commit")
    new_executor: bool = Field(
        False,
        description="True: accept an executor that no setting, build or worker has named so far",
    )


BUILDS = Noun(
    "builds",
    {
        "name": "name",
        "executor": "executor",
        "branch": "branch",
        "sequence": "sequence",
        "commit": "commit",
        "author": "author",
        "arithmetic": "arithmetic",
        "outputs": "outputs",
        "registered": "created_at",
    },
    "a build",
    about="A build can't be changed: a name's meaning never"
    " changes. Remove it while it has no jobs, and register it again.",
    key="name",
    filters={
        "executor": "List only builds of this executor.",
        "branch": "List only builds of this branch.",
    },
    create=Verb(
        "registered",
        "Register a build. Registering the same build again changes nothing.",
        BuildIn,
        positional=("name",),
    ),
    remove=Verb("removed", "Remove a build that no job has.", scope="admin"),
)
