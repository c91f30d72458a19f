/* SPDX-License-Identifier: Apache-2.0 */
/* Generates completion for bash, zsh and fish from the tables. */
#include "cli.h"

#include <string.h>

/* Writes all words of a kind (methods, engines and others), separated by
 * blanks. */
static void put_words(FILE *out, cli_words words)
{
    for (uint32_t i = 0; cli_word(words, i); i++)
        fprintf(out, "%s%s", i ? " " : "", cli_word(words, i));
}

/* Checks whether an option's argument may be a file. */
static bool takes_files(const cli_option *o)
{
    return o->words == CLI_WORDS_FILES || o->words == CLI_WORDS_MODELS ||
           o->words == CLI_WORDS_METHODS_OR_FILES;
}

/* Writes the bash code that completes option `o`'s argument: its choices,
 * a list of words, or file names. */
static void put_bash_words(FILE *out, const cli_option *o)
{
    if (o->type == CLI_CHOICE) {
        fputs("COMPREPLY=($(compgen -W \"", out);
        for (uint32_t i = 0; cli_choice_word(o, i); i++)
            fprintf(out, "%s%s", i ? " " : "", cli_choice_word(o, i));
        fputs("\" -- \"$cur\"))", out);
    } else if (cli_word(o->words, 0)) {
        fputs("COMPREPLY=($(compgen -W \"", out);
        put_words(out, o->words);
        fprintf(out, "\"%s -- \"$cur\"))", takes_files(o) ? " -f" : "");
    } else if (o->words == CLI_WORDS_FILES) {
        fputs("COMPREPLY=($(compgen -f -- \"$cur\"))", out);
    } else if (o->words == CLI_WORDS_FOLDERS) {
        fputs("COMPREPLY=($(compgen -d -- \"$cur\"))", out);
    } else {
        fputs("COMPREPLY=()", out);
    }
}

/* Writes the bash case that completes an option's argument; nothing for a
 * flag. */
static void put_bash_option(FILE *out, const cli_command *k,
                            const cli_option *o)
{
    if (o->type == CLI_FLAG)
        return;
    fprintf(out, "        %s:--%s", k->name, o->name);
    if (o->letter)
        fprintf(out, "|%s:-%c", k->name, o->letter);
    fputs(")\n            ", out);
    put_bash_words(out, o);
    fputs("\n            return ;;\n", out);
}

/* Writes the complete bash completion script for all commands and options. */
static void put_bash(FILE *out)
{
    fputs("# bash completion for longhaul, made from the program's tables\n"
          "_longhaul()\n{\n"
          "    local cur=${COMP_WORDS[COMP_CWORD]} "
          "prev=${COMP_WORDS[COMP_CWORD-1]}\n"
          "    local command=${COMP_WORDS[1]}\n"
          "    # --option=value comes as three words\n"
          "    if [[ $cur == = ]]; then cur=; "
          "elif [[ $prev == = ]]; then prev=${COMP_WORDS[COMP_CWORD-2]}; fi\n"
          "    if ((COMP_CWORD == 1)); then\n"
          "        COMPREPLY=($(compgen -W \"help --help --version",
          out);
    for (uint32_t i = 0; cli_commands[i]; i++)
        fprintf(out, " %s", cli_commands[i]->name);
    fputs("\" -- \"$cur\"))\n        return\n    fi\n"
          "    case $command:$prev in\n",
          out);
    for (uint32_t i = 0; cli_commands[i]; i++) {
        const cli_command *k = cli_commands[i];
        for (uint32_t j = 0; j < k->n_options; j++)
            put_bash_option(out, k, &k->options[j]);
        for (uint32_t j = 0; j < cli_n_common_options; j++)
            put_bash_option(out, k, &cli_common_options[j]);
    }
    fputs("    esac\n    if [[ $cur == -* ]]; then\n"
          "        case $command in\n",
          out);
    for (uint32_t i = 0; cli_commands[i]; i++) {
        const cli_command *k = cli_commands[i];
        fprintf(out, "        %s) COMPREPLY=($(compgen -W \"", k->name);
        for (uint32_t j = 0; j < k->n_options; j++)
            fprintf(out, "--%s ", k->options[j].name);
        for (uint32_t j = 0; j < cli_n_common_options; j++)
            fprintf(out, "%s--%s", j ? " " : "", cli_common_options[j].name);
        fputs("\" -- \"$cur\")) ;;\n", out);
    }
    fputs("        esac\n        return\n    fi\n"
          "    COMPREPLY=($(compgen -f -- \"$cur\"))\n}\n"
          "complete -o filenames -F _longhaul longhaul\n",
          out);
}

/* Prints the help text's first sentence, without the characters that shells
 * treat as special within quotes or brackets. */
static void put_short_help(FILE *out, const char *help)
{
    for (const char *p = help; *p && !(p[0] == '.' && (!p[1] || p[1] == ' '));
         p++) {
        if (strchr("'[]:\\\"`$", *p))
            continue;
        fputc(*p == '\n' ? ' ' : *p, out);
    }
}

/* Writes option `o`, with its help and its argument, in the form that zsh's
 * _arguments expects. */
static void put_zsh_option(FILE *out, const cli_option *o)
{
    fputs(" \\\n            '", out);
    if (o->letter)
        fprintf(out, "(-%c --%s)'{-%c,--%s}'[", o->letter, o->name, o->letter,
                o->name);
    else
        fprintf(out, "--%s%s[", o->name, o->type == CLI_FLAG ? "" : "=");
    put_short_help(out, o->help);
    fputc(']', out);
    if (o->type != CLI_FLAG)
        fprintf(out, ":%s:", o->arg);
    if (o->type == CLI_CHOICE) {
        fputc('(', out);
        for (uint32_t i = 0; cli_choice_word(o, i); i++)
            fprintf(out, "%s%s", i ? " " : "", cli_choice_word(o, i));
        fputc(')', out);
    } else if (cli_word(o->words, 0) && !takes_files(o)) {
        fputc('(', out);
        put_words(out, o->words);
        fputc(')', out);
    } else if (o->words == CLI_WORDS_MODELS) {
        fputs("_longhaul_models_or_files", out);
    } else if (o->words == CLI_WORDS_METHODS_OR_FILES) {
        fputs("_longhaul_methods_or_files", out);
    } else if (o->words == CLI_WORDS_FILES) {
        fputs("_files", out);
    } else if (o->words == CLI_WORDS_FOLDERS) {
        fputs("_files -/", out);
    }
    fputc('\'', out);
}

/* Writes a zsh function, with the description `what`, that completes words of
 * one kind or, if the kind permits, file names. */
static void put_zsh_words_or_files(FILE *out, const char *what, cli_words words)
{
    fprintf(out, "_longhaul_%ss_or_files()\n{\n    local -a words=(", what);
    put_words(out, words);
    fprintf(out,
            ")\n    _alternative '%ss:%s:compadd -a words' "
            "'files:file:_files'\n}\n",
            what, what);
}

/* Writes the complete zsh completion script for all commands and options. */
static void put_zsh(FILE *out)
{
    fputs("#compdef longhaul\n"
          "# zsh completion for longhaul, made from the program's tables\n",
          out);
    put_zsh_words_or_files(out, "method", CLI_WORDS_METHODS);
    put_zsh_words_or_files(out, "model", CLI_WORDS_MODELS);
    fputs("_longhaul()\n{\n    local -a commands=(\n", out);
    for (uint32_t i = 0; cli_commands[i]; i++) {
        fprintf(out, "        '%s:", cli_commands[i]->name);
        put_short_help(out, cli_commands[i]->about);
        fputs("'\n", out);
    }
    fputs("    )\n    if ((CURRENT == 2)); then\n"
          "        _describe 'command' commands\n        return\n    fi\n"
          "    local command=$words[2]\n    shift words\n"
          "    ((CURRENT--))\n    case $command in\n",
          out);
    for (uint32_t i = 0; cli_commands[i]; i++) {
        const cli_command *k = cli_commands[i];
        fprintf(out, "    %s)\n        _arguments -s", k->name);
        for (uint32_t j = 0; j < k->n_options; j++)
            put_zsh_option(out, &k->options[j]);
        for (uint32_t j = 0; j < cli_n_common_options; j++)
            put_zsh_option(out, &cli_common_options[j]);
        fputs(" \\\n            '*:file:_files' ;;\n", out);
    }
    fputs("    esac\n}\n_longhaul \"$@\"\n", out);
}

/* Writes the fish command that completes a command's option. */
static void put_fish_option(FILE *out, const char *command, const cli_option *o)
{
    fprintf(out, "complete -c longhaul -n '__fish_seen_subcommand_from %s'",
            command);
    if (o->letter)
        fprintf(out, " -s %c", o->letter);
    fprintf(out, " -l %s", o->name);
    if (o->type != CLI_FLAG)
        fputs(takes_files(o) ? " -r -F" : " -x", out);
    if (o->type == CLI_CHOICE) {
        fputs(" -a '", out);
        for (uint32_t i = 0; cli_choice_word(o, i); i++)
            fprintf(out, "%s%s", i ? " " : "", cli_choice_word(o, i));
        fputc('\'', out);
    } else if (cli_word(o->words, 0)) {
        fputs(" -a '", out);
        put_words(out, o->words);
        fputc('\'', out);
    } else if (o->words == CLI_WORDS_FOLDERS) {
        fputs(" -a '(__fish_complete_directories)'", out);
    }
    fputs(" -d '", out);
    put_short_help(out, o->help);
    fputs("'\n", out);
}

/* Writes the complete fish completion script for all commands and options. */
static void put_fish(FILE *out)
{
    fputs("# fish completion for longhaul, made from the program's tables\n",
          out);
    for (uint32_t i = 0; cli_commands[i]; i++) {
        const cli_command *k = cli_commands[i];
        fprintf(out,
                "complete -c longhaul -n __fish_use_subcommand -f -a %s -d '",
                k->name);
        put_short_help(out, k->about);
        fputs("'\n", out);
        for (uint32_t j = 0; j < k->n_options; j++)
            put_fish_option(out, k->name, &k->options[j]);
        for (uint32_t j = 0; j < cli_n_common_options; j++)
            put_fish_option(out, k->name, &cli_common_options[j]);
    }
}

bool cli_complete(FILE *out, const char *shell)
{
    if (strcmp(shell, "bash") == 0)
        put_bash(out);
    else if (strcmp(shell, "zsh") == 0)
        put_zsh(out);
    else if (strcmp(shell, "fish") == 0)
        put_fish(out);
    else
        return false;
    return true;
}
