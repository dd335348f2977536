"""Groups of commands: one that imports a command only when it runs, and one with a command by default."""

import difflib
from collections.abc import Mapping
from importlib import import_module
from typing import Any

import click

from sapo_node.cli.entry import INTERRUPTED


class CommandGroup(click.Group):
    """Holds the names of commands in sections. `sections` names the module of each command within `package`.

    A command is imported when it runs: libp2p and torch take seconds, and most commands need neither.
    """

    def __init__(self, *args: Any, package: str, sections: Mapping[str, Mapping[str, str]], **settings: Any) -> None:
        super().__init__(*args, **settings)
        self._package = package
        self._sections = sections
        self._modules = {name: module for modules in sections.values() for name, module in modules.items()}

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write each section of commands with the first sentence of each command's help. A group also names its own."""
        width = max(map(len, self._modules))
        limit = formatter.width - width - 6  # two columns before a name, and between a name and its help
        for title, modules in self._sections.items():
            commands = {name: self.get_command(ctx, name) for name in modules}
            rows = [(f"{name:{width}}", _in_short(ctx, each, limit)) for name, each in commands.items() if each]
            with formatter.section(title):
                formatter.write_dl(rows)

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the commands in the order of `sections`, not sorted by name."""
        del ctx
        return list(self._modules)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Resolve a command as click does. If there is none of this name, suggest the most similar names."""
        close = difflib.get_close_matches(args[0], self._modules, 2)
        if close and args[0] not in self._modules:
            ctx.fail(f"No such command {args[0]!r}. Did you mean {' or '.join(map(repr, close))}?")
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        """Run a command. Ctrl-C ends it with exit code INTERRUPTED, where click would exit with 1."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            ctx.exit(INTERRUPTED)
        except click.Abort as aborted:  # also of a prompt, where Ctrl-D raises it as well
            if isinstance(aborted.__context__, KeyboardInterrupt):
                ctx.exit(INTERRUPTED)
            raise

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return the command of this name; None if there is none."""
        del ctx
        if cmd_name not in self._modules:
            return None
        found = vars(import_module(f"{self._package}.{self._modules[cmd_name]}")).values()
        return next(each for each in found if isinstance(each, click.Command) and each.name == cmd_name)


def _in_short(ctx: click.Context, command: click.Command, limit: int) -> str:
    own = f"{', '.join(command.list_commands(ctx))}: " if isinstance(command, click.Group) else ""
    return own + command.get_short_help_str(limit - len(own))


class Group(click.Group):
    """Commands in the order in which they are defined. If the first argument names none, the command `default` runs:
    `peers PEER` is `peers show PEER`.
    """

    def __init__(self, *args: Any, default: str = "", **settings: Any) -> None:
        super().__init__(*args, **settings)
        self._default = default

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the commands in the order of their definition, not sorted by name."""
        del ctx
        return list(self.commands)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the arguments. The name of the default command is added if they name none and ask for no help."""
        if self._default and (not args or args[0] not in {*self.commands, *ctx.help_option_names}):
            args = [self._default, *args]
        return super().parse_args(ctx, args)
