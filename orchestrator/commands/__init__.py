"""The subcommands of `campaign`, listed, not discovered; one module for each family."""

from orchestrator.commands.run import add_resume_parser, add_run_parser, add_stop_parser

ALL = (
    add_run_parser,
    add_resume_parser,
    add_stop_parser,
)
