"""``gpuinterop completion SHELL``: prints a script, made from the parsers, that completes commands and options."""

from __future__ import annotations

import argparse

from gpuinterop.arrays.dtypes import NAMES
from gpuinterop.cli import COMMANDS, parser_of
from gpuinterop.exchange import registry
from gpuinterop.testing.layouts import LAYOUTS

EPILOG = """\
exit code: 0 printed; 2 an argument is wrong

Add eval "$(gpuinterop completion bash)" to ~/.bashrc, or with zsh in place of bash to ~/.zshrc.

example: gpuinterop completion bash
"""
# Values of options, by the first word of their metavar. Other options take names of files.
VALUES = {"LIBRARY": registry.names(), "LAYOUT": LAYOUTS, "DTYPE": NAMES, "DEVICE": ("cpu", "cuda")}
# zsh runs the same script: its bashcompinit defines `complete` and `compgen`.
ZSH = """\
(( $+functions[compdef] )) || { autoload -Uz compinit && compinit; }
autoload -Uz bashcompinit && bashcompinit
"""
SCRIPT = """\
_gpuinterop() {{
    local words=""
    case "$3" in
{values}
    *) case "$COMP_CWORD:${{COMP_WORDS[1]}}" in
        1:*) words="{commands} help" ;;
        *:help) words="{commands}" ;;
{options}
        esac ;;
    esac
    COMPREPLY=($(compgen -W "$words" -- "$2"))
}}
complete -o default -F _gpuinterop gpuinterop"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the name of the shell."""
    parser.epilog = EPILOG
    parser.add_argument("shell", choices=("bash", "zsh"))


def run(arguments: argparse.Namespace) -> int:
    """Print the script."""
    words: dict[str, list[str]] = {}  # of each command
    options: dict[str, set[str]] = {}  # that take each kind of value
    for name in COMMANDS:
        words[name] = []
        for action in parser_of(name)._actions:
            words[name] += action.option_strings[-1:] or action.choices or ()
            if action.option_strings and action.nargs != 0:
                kind = str(action.metavar).partition(",")[0]
                options.setdefault(kind if kind in VALUES else "", set()).update(
                    action.option_strings
                )
    script = SCRIPT.format(
        commands=" ".join(COMMANDS),
        values="\n".join(
            f'    {"|".join(sorted(names))}) words="{" ".join(VALUES.get(kind, ()))}" ;;'
            for kind, names in options.items()
        ),
        options="\n".join(f'        *:{name}) words="{" ".join(known)}" ;;' for name, known in words.items()),
    )  # fmt: skip
    print(ZSH + script if arguments.shell == "zsh" else script)
    return 0
