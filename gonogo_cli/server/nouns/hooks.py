"""`gonogo hooks`: deliveries of GitHub and other CI that came in."""

from __future__ import annotations

from datetime import timedelta

import typer

from gonogo.errors import InfrastructureError, JobError
from gonogo_cli.kit import nouns
from gonogo_cli.kit.groups import group
from gonogo_cli.kit.nouns import CURSOR, JSON, LIMIT, Noun

HOOKS = Noun(
    "hooks",
    {
        "delivery": "id",
        "received": "received_at",
        "event": "event",
        "repository": "repository",
        "state": "state",
        "reason": "reason",
    },
    "a delivery",
    path="/hooks/deliveries",
    plural="deliveries",
)
app = group("Look at deliveries of GitHub and other CI; fetch those that were missed.")
KEPT_HOURS = 72.0
"""GitHub remembers deliveries for three days."""


@app.command("catch-up")
def catch_up(
    repository: list[str] = typer.Option(
        [], help="owner/name, repeatable; default: the repositories that the rules name."
    ),
    hook: int | None = typer.Option(
        None,
        help="Number of the webhook at GitHub; default: those whose address is this service's.",
    ),
    as_app: bool = typer.Option(
        False, "--app", help="The App's own webhook, in the place of the repositories'."
    ),
    hours: float = typer.Option(
        KEPT_HOURS, min=0.1, max=30 * 24, help="How far to look back; GitHub remembers three days."
    ),
    send_again: bool = typer.Option(
        False,
        "--send-again",
        help="Ask GitHub to send it once more, signed, in the place of fetching it.",
    ),
    patience: float = typer.Option(
        60.0, min=0, max=7200, help="Wait at most this many seconds for GitHub's rate limits."
    ),
    as_json: bool = typer.Option(False, "--json", help="Print JSON."),
) -> None:
    """Fetch what GitHub sent while the service was down. Runs beside the database.

    Speaks with GONOGO_GITHUB_TOKEN, which must be allowed to read webhooks, or as the App. What
    came in before is left alone; what is fetched, the background works off.
    """
    import gonogo_settings
    from gonogo_cli.kit import show
    from gonogo_cli.operate.database import engine
    from gonogo_service.github.problems import GitHubError, Refused
    from gonogo_service.hooks import catch_up as fetching
    from gonogo_storage.automation import ci_rules
    from gonogo_storage.db.encoding import utcnow
    from gonogo_storage.db.engine import reading

    try:
        github = fetching.client_of(
            gonogo_settings.load(), as_app=as_app, patience=fetching.Patience(patience)
        )
    except ValueError as problem:
        raise JobError(str(problem)) from problem
    if github is None:
        raise JobError(
            "GONOGO_GITHUB_APP_ID and GONOGO_GITHUB_APP_KEY are not set"
            if as_app
            else "GONOGO_GITHUB_TOKEN is not set"
        )
    since = utcnow() - timedelta(hours=hours)
    caught = fetching.CatchUpCounts()
    with engine() as database:
        with reading(database) as session:
            rules = [rule.content for rule in ci_rules.in_use(session)]
        exact = {
            name for rule in rules for name in rule["repositories"] if not set(name) & set("*?!")
        }
        names = [fetching.OF_THE_APP] if as_app else list(repository) or sorted(exact)
        if not names:
            raise JobError(
                "no rule names a repository without a pattern: say --repository owner/name"
            )
        if hook is not None and len(names) != 1:
            raise JobError("--hook needs exactly one --repository")
        try:
            for name in names:
                numbers: list[int | None] = (
                    [None]
                    if as_app
                    else [hook]
                    if hook is not None
                    else [*fetching.hooks_of(github, name)]
                )
                for number in numbers:
                    fetching.catch_up(
                        github, database, name, number, since, caught, send_again=send_again
                    )
        except Refused as problem:
            raise JobError(f"GitHub refuses: {problem}") from problem
        except GitHubError as problem:
            raise InfrastructureError(
                f"{problem}; {caught.fetched} deliveries were fetched before"
            ) from problem
        finally:
            github.close()
    if as_json:
        show.print_json({"repositories": names, **vars(caught)})
    else:
        again = f"{caught.sent_again} asked for again, " if caught.sent_again else ""
        print(
            f"{caught.fetched} fetched, {again}{caught.known} had come in, of "
            f"{caught.seen} deliveries of {caught.hooks} webhooks"
        )


@app.command("list")
def list_(limit: int = LIMIT, cursor: str | None = CURSOR, as_json: bool = JSON) -> None:
    """List the newest deliveries that came in, and what became of each."""
    nouns.print_list(HOOKS, limit=limit, cursor=cursor, as_json=as_json)


nouns.add_show(app, HOOKS, "Show a delivery and what it started.")
